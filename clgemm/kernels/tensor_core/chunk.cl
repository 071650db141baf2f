// How tensor_core/narrow.cl splits elements, and packs B in chunks of COLUMNS columns. An element is x = r*(h + l); h and l
// have eleven bits each. Chunks come in two kinds, for the two methods:
//   halves    64 of k, h and l in fp16. A chunk of B has one scale r, and each row of A has one in a chunk.
//   tf32      32 of k, h and l as fp32 numbers that tensor cores read as tf32. r is 1.
// A chunk is stored as wgmma reads it; both kinds take as many bytes:
//   byte 0      high[core][column]    16 bytes, of 8 (tf32: 4) neighbouring k
//   LOW_AT      low[core][column]
//   MARKS_AT    marks                 ulong: bit p for number p of the chunk's k, if an element there cannot be split
//   SCALE_AT    r
// Elements that cannot be split are zero in the parts. In halves they are too small beside the largest of their chunk (of
// A: of their row), or huge; in tf32 tiny or huge; in both Inf and NaN.
//
// Eight columns of a core are a core matrix of wgmma: 128 contiguous bytes. The order of k is such that a work-item's
// share of A, for a product of 16 of k, has four values of k from each of its rows: neighbours, or four apart.
#ifndef COLUMNS
#error "COLUMNS: of C per tile: 16, 32, 64, 96 or 128"
#endif
#ifndef ALONG_K
#error "ALONG_K: 1 if the columns of A are neighbours in memory, 0 if its rows are"
#endif
#define GROUP 128  // work-items of a warp group
#define GROUPS 2   // warp groups of a work-group
#define ITEMS (GROUPS * GROUP)
#define PITCH (COLUMNS * 16)  // bytes of a core
#define LOW_AT (8 * PITCH)
#define MARKS_AT (2 * LOW_AT)
#define SCALE_AT (MARKS_AT + 8)
#define CHUNK_BYTES (MARKS_AT + 128)  // whole cache lines
#define CHUNK_OF(tf32) ((tf32) ? 32 : 64)  // of k

// Of 16 values of k, number `i` of the four that belong to work-items with lane%4 == t.
#define K_OF(t, i) (ALONG_K ? (t) * 4 + (i) : (i) * 4 + (t))

// Halves: the largest element is scaled to at least 2^TOP and less than twice that. Scales lie between 2^-63 and 2^63, so that
// the product of two is a normal number.
#define TOP 14
#define LEAST_E (127 + TOP - 63)
#define HUGE_BITS ((uint)(127 + TOP + 64) << 23)
static inline int exponent_of(const uint largest) { return max((int)(largest >> 23), LEAST_E); }
static inline float scale_of(const int e) { return as_float((uint)(e - TOP) << 23); }
static inline float times_of(const int e) { return as_float((uint)(254 + TOP - e) << 23); }  // 1/scale
static inline uint tiny_bits(const int e, const int least) { return (uint)(e - TOP + least) << 23; }

// Tf32: elements from 2^-113 on can be split: their last bits are subnormal numbers that tensor cores can represent. So can
// elements below 2^60: the sum of a chunk's products does not overflow.
#define TINY_OF_TF32 ((uint)(127 - 113) << 23)
#define HUGE_OF_TF32 ((uint)(127 + 60) << 23)

static inline void split_to_tf32(const float x, uint* high, uint* low) {
  *high = (as_uint(x) + 0x1000) & 0xffffe000;
  *low = as_uint(x - as_float(*high));
}

// Local memory for what work-items find together in a chunk.
typedef struct {
  uint largest, smallest;  // bits of the largest that is not huge; of the smallest but zeros, minus 1
  uint marks[2];
  bool any_huge;
} Found;

static inline void reset(__local Found* found) {
  found->largest = 0, found->smallest = -1, found->any_huge = false;
  found->marks[0] = found->marks[1] = 0;
}

// A work-item packs 16 of k of a column, SHARES_OF(tf32) times.
#define SHARES_OF(tf32) ((CHUNK_OF(tf32) / 16 * COLUMNS + ITEMS - 1) / ITEMS)

// Load this work-item's shares of a chunk of B, of which `depth` of k and `columns` exist. `tf32` is a constant.
static inline __attribute__((always_inline)) void load_shares(float x[][16], const bool tf32, __global const float* from,
                                                              const long row, const long column, const int depth,
                                                              const int columns) {
  const int item = get_local_id(0);
  #pragma unroll
  for (int s = 0; s < SHARES_OF(tf32); s++) {
    const int j = (item + s * ITEMS) % COLUMNS, p_0 = (item + s * ITEMS) / COLUMNS * 16;
    __global const float* own = from + j * column + p_0 * row;
    const int left = j < columns && p_0 < CHUNK_OF(tf32) ? depth - p_0 : 0;
    if (row == 1 && left >= 16 && ((ulong)own & 15) == 0) {
      #pragma unroll
      for (int p = 0; p < 16; p += 4) STORE(4, LOAD_ALIGNED(4, __global, own + p), x[s] + p);
    } else {
      #pragma unroll
      for (int p = 0; p < 16; p++) x[s][p] = p < left ? own[p * row] : 0.0f;
    }
  }
}

// Find what `pack_shares` needs to know of a chunk. All work-items call it, behind a barrier after `reset`. Afterwards, the
// shares have been loaded.
static inline __attribute__((always_inline)) void see_shares(float x[][16], const bool tf32, __local Found* found) {
  const int item = get_local_id(0);
  uint largest = 0, smallest = -1;
  bool any_huge = false;
  const uint huge = tf32 ? HUGE_OF_TF32 : HUGE_BITS;
  #pragma unroll
  for (int s = 0; s < SHARES_OF(tf32); s++)
    #pragma unroll
    for (int p = 0; p < 16; p++) {
      const uint size = as_uint(x[s][p]) & 0x7fffffff;
      largest = max(largest, size < huge ? size : 0);
      smallest = min(smallest, size - 1);
      any_huge |= size >= huge;
    }
  largest = largest_of_warp(largest);
  smallest = ~largest_of_warp(~smallest);
  if (item % 32 == 0) {
    atomic_max(&found->largest, largest);
    atomic_min(&found->smallest, smallest);
  }
  if (any_huge) found->any_huge = true;
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Pack a chunk of B, whose shares are in x.
static inline __attribute__((always_inline)) void pack_shares(float x[][16], const bool tf32, const int least,
                                                              __global uchar* to, __local Found* found) {
  const int item = get_local_id(0);
  const uint huge = tf32 ? HUGE_OF_TF32 : HUGE_BITS;
  const int e = exponent_of(found->largest);
  const uint tiny = tf32 ? TINY_OF_TF32 : tiny_bits(e, least);
  if (found->any_huge || found->smallest < tiny - 1) {
    #pragma unroll
    for (int s = 0; s < SHARES_OF(tf32); s++) {
      const int p_0 = (item + s * ITEMS) / COLUMNS * 16;
      uint here = 0;
      #pragma unroll
      for (int p = 0; p < 16; p++)
        if (is_outlier(x[s][p], tiny, huge)) here |= 1u << p, x[s][p] = 0.0f;
      if (here != 0) atomic_or(found->marks + p_0 / 32, here << p_0 % 32);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float times = times_of(e);
  #pragma unroll
  for (int s = 0; s < SHARES_OF(tf32); s++) {
    const int j = (item + s * ITEMS) % COLUMNS, block = (item + s * ITEMS) / COLUMNS;
    if (block * 16 >= CHUNK_OF(tf32)) break;
    #pragma unroll
    for (int core = 0; core < (tf32 ? 4 : 2); core++) {  // of a block of 16 of k
      uint high[4], low[4];
      #pragma unroll
      for (int t = 0; t < 4; t++)
        if (tf32)
          split_to_tf32(x[s][K_OF(t, core)], high + t, low + t);
        else
          high[t] = split_two(x[s][K_OF(t, 2 * core)] * times, x[s][K_OF(t, 2 * core + 1)] * times, low + t);
      __global uint4* place = (__global uint4*)(to + ((block * (tf32 ? 4 : 2) + core) * COLUMNS + j) * 16);
      place[0] = (uint4)(high[0], high[1], high[2], high[3]);
      place[LOW_AT / 16] = (uint4)(low[0], low[1], low[2], low[3]);
    }
  }
  if (item == 0) {
    *(__global ulong*)(to + MARKS_AT) = (ulong)found->marks[1] << 32 | found->marks[0];
    *(__global float*)(to + SCALE_AT) = tf32 ? 1.0f : scale_of(e);
  }
}
