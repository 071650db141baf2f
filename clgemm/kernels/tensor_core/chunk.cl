// How tensor_core/narrow.cl splits elements, and packs B in chunks: CHUNK of k, COLUMNS columns. An element is x = h + l.
// Tensor cores read 11 bits of each (tf32), with float32's exponents. A chunk is stored as wgmma reads it:
//   byte 0    high[core][column][4]   h, rounded to 11 bits
//   LOW_AT    low[core][column][4]    l
//   ODD_AT    odd                     uint: not zero if an element cannot be split
// Eight columns of a core are a core matrix of wgmma: 128 contiguous bytes. The order of k is such that a work-item's
// share of A, for a product of 16 of k, has four values of k from each of its rows: neighbours, or four apart.
#ifndef COLUMNS
#error "COLUMNS: of C per tile: 16, 32, 64, 96 or 128"
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

// Chunks that a work-group packs at a time: a work-item packs 16 of k of one column.
#define PACKED_AT_ONCE (ITEMS / (2 * COLUMNS))

// Pack 16 of k of a column of B, half `half_k` of a chunk's, of which `depth` exist. Returns whether one cannot be split.
static inline uint pack_column(__global const float* from, const long row, const int depth, __global uchar* to, const int half_k,
                               const int column) {
  float x[16];
  if (row == 1 && depth >= 16 && ((ulong)from & 15) == 0) {
    #pragma unroll
    for (int p = 0; p < 16; p += 4) STORE(4, LOAD_ALIGNED(4, __global, from + p), x + p);
  } else {
    #pragma unroll
    for (int p = 0; p < 16; p++) x[p] = p < depth ? from[p * row] : 0.0f;
  }
  Seen seen = {-1, 0.0f};
  #pragma unroll
  for (int p = 0; p < 16; p++) see(&seen, x[p]);
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    uint high[4], low[4];
    #pragma unroll
    for (int t = 0; t < 4; t++) split(x[K_OF(t, i)], high + t, low + t);
    __global uint4* place = (__global uint4*)(to + ((half_k * 4 + i) * COLUMNS + column) * 16);  // in core half_k*4 + i
    place[0] = (uint4)(high[0], high[1], high[2], high[3]);
    place[LOW_AT / 16] = (uint4)(low[0], low[1], low[2], low[3]);
  }
  return is_odd(&seen);
}
