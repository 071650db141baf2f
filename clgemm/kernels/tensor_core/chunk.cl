// How tensor_core/narrow.cl splits elements, and packs B in chunks: CHUNK of k, COLUMNS columns. An element is x = h + l.
// Tensor cores read 11 bits of each (tf32), with float32's exponents. A chunk is stored as wgmma reads it:
//   byte 0    high[core][column][4]   h, rounded to 11 bits
//   LOW_AT    low[core][column][4]    l
//   ODD_AT    odd                     uint: not zero if an element cannot be split
// Eight columns of a core are a core matrix of wgmma: 128 contiguous bytes. The order of k is such that a work-item's
// share of A, for a product of 16 of k, has four values of k from each of its rows: neighbours, or four apart.
#ifndef COLUMNS
#error "COLUMNS: of C per tile: 16, 32 or 64"
#endif
#ifndef ALONG_K
#error "ALONG_K: 1 if the columns of A are neighbours in memory, 0 if its rows are"
#endif
#ifndef PARTS
#error "PARTS: warp groups of a work-group"
#endif
#define GROUP 128  // work-items of a warp group
#define ITEMS (GROUP * PARTS)
#define CHUNK 32
#define PITCH (COLUMNS * 16)  // bytes of a core
#define LOW_AT (CHUNK / 4 * PITCH)
#define ODD_AT (2 * LOW_AT)
#define CHUNK_BYTES (ODD_AT + 128)  // whole cache lines

// Of 16 values of k, number `i` of the four that belong to work-items with lane%4 == t.
#define K_OF(t, i) (ALONG_K ? (t) * 4 + (i) : (i) * 4 + (t))

// Elements from 2^-113 on can be split: their last bits are subnormal numbers that tensor cores can represent. So can
// elements below 2^60: the sum of a chunk's products does not overflow.
#define TINY_BITS ((127 - 113) << 23)
#define TIMES_HUGE_OVERFLOWS 0x1p68f

static inline void split(const float x, uint* high, uint* low) {
  *high = (as_uint(x) + 0x1000) & 0xffffe000;
  *low = as_uint(x - as_float(*high));
}

// What tells whether all elements of a set can be split.
typedef struct {
  uint least;  // the least of their bits, doubled, minus 1: zero becomes the largest
  float sum;   // of their sizes, times a factor that makes it overflow if one is too large
} Seen;

static inline void see(Seen* seen, const float x) {
  seen->least = min(seen->least, as_uint(x) * 2 - 1);
  seen->sum = fma(fabs(x), TIMES_HUGE_OVERFLOWS, seen->sum);
}

static inline uint is_odd(const Seen* seen) { return seen->least < TINY_BITS * 2u - 1 || !(seen->sum < INFINITY); }

// Pack the chunk of B at `from`, of which `depth` of k and `columns` exist. Call it with all work-items.
static inline void pack_chunk(__global const float* from, const long row, const long column, const int depth, const int columns,
                              __global uchar* to, __local uint* odd) {
  const int item = get_local_id(0);
  if (item == 0) *odd = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  Seen seen = {-1, 0.0f};
  for (int index = item; index < CHUNK / 4 * COLUMNS; index += ITEMS) {
    const int t = index / COLUMNS % 4, part = index / COLUMNS / 4, j = index % COLUMNS;  // part: which 16 of k
    float x[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int p = part * 16 + K_OF(t, i);
      x[i] = p < depth && j < columns ? from[p * row + j * column] : 0.0f;
      see(&seen, x[i]);
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      uint high, low;
      split(x[i], &high, &low);
      __global uint* place = (__global uint*)(to + ((part * 4 + i) * COLUMNS + j) * 16) + t;  // of core part*4 + i
      *place = high;
      place[LOW_AT / 4] = low;
    }
  }
  if (is_odd(&seen)) atomic_or(odd, 1);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) *(__global uint*)(to + ODD_AT) = *odd;
}
