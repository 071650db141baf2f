// How tensor_core/narrow.cl splits elements, and stores B: in chunks of CHUNK of k and COLUMNS columns. An element is x = h + l; of both
// the tensor cores read eleven bits (tf32), with the exponents of float32. A chunk, as wgmma reads it from local memory:
//   byte 0    high[core][column][4]   h, rounded to eleven bits
//   LOW_AT    low[core][column][4]    l
//   ODD_AT    odd                     uint: not zero if an element is not to be split
// Eight columns of a core are one of wgmma's core matrices, 128 bytes in a run. Which of k is where: so that a work-item's share
// of A for a product of sixteen of k is, of each of its rows, four neighbours of k, or four of k that are four apart.
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
#define CHUNK_BYTES (ODD_AT + 128)  // whole lines of the cache

// Of the sixteen of k that are number `i` of the four of the work-items with lane%4 == t.
#define K_OF(t, i) (ALONG_K ? (t) * 4 + (i) : (i) * 4 + (t))

// Elements are split from 2^-113 on, whose last bits are some of the subnormal numbers that tensor cores know, and below 2^60,
// of which a chunk's products do not add up to infinity.
#define TINY_BITS ((127 - 113) << 23)
#define TIMES_HUGE_OVERFLOWS 0x1p68f

static inline void split(const float x, uint* high, uint* low) {
  *high = (as_uint(x) + 0x1000) & 0xffffe000;
  *low = as_uint(x - as_float(*high));
}

// What says whether all of some elements can be split.
typedef struct {
  uint least;  // of twice their bits minus one, for which zero counts as most
  float sum;   // of their sizes, times so much that it is not finite if one of them is too large
} Seen;

static inline void see(Seen* seen, const float x) {
  seen->least = min(seen->least, as_uint(x) * 2 - 1);
  seen->sum = fma(fabs(x), TIMES_HUGE_OVERFLOWS, seen->sum);
}

static inline uint is_odd(const Seen* seen) { return seen->least < TINY_BITS * 2u - 1 || !(seen->sum < INFINITY); }

// Split B's chunk at `from`, of which `depth` of k and `columns` are there. Called by all work-items.
static inline void pack_chunk(__global const float* from, const long row, const long column, const int depth, const int columns,
                              __global uchar* to, __local uint* odd) {
  const int item = get_local_id(0);
  if (item == 0) *odd = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  Seen seen = {-1, 0.0f};
  for (int index = item; index < CHUNK / 4 * COLUMNS; index += ITEMS) {
    const int t = index / COLUMNS % 4, part = index / COLUMNS / 4, j = index % COLUMNS;  // part: which sixteen of k
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
