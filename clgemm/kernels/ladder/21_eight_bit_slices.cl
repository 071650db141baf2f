// Rung 21, eight-bit slices: an exact product of 32-bit integers, made of products of bytes.
//   a[p*m + i]       m x k        a_d[d][p/4][i]        digit d of four neighbours along k, in a word
//   b[j*k + p]       k x n        b_d[3 - d][p/4][j]    the same, with the highest digit first
//   c[j*m + i]       m x n        modulo 2^32
//   tile_a[t % 2][p/4][i] and tile_b[t % 2][p/4][j]: rows of words, each with 8 words to spare
// New: a first kernel, pack, writes each integer in base 256, x = d0 + 256*d1 + 256^2*d2 + 256^3*d3, with digits
//   from -128 to 127. The product of two integers is then the sum of 256^(i + j) times digit i of A times digit j
//   of B. Pairs with i + j > 3 are multiples of 2^32, so ten of the sixteen pairs are left. Horner's rule joins
//   them in one sum for each element of C, over all of k for each line:
//
//     a0*b3 + a1*b2 + a2*b1 + a3*b0
//     shift by 8 bits, add a0*b2 + a1*b1 + a2*b0
//     shift by 8 bits, add a0*b1 + a1*b0
//     shift by 8 bits, add a0*b0
//
//   B's digits lie in the opposite order of A's. So each line is one product with a longer k, such as
//   [A0 A1 A2] times [B2 B1 B0] one below the other.
// How: with TENSOR, the instruction is rung 17's for bytes. It multiplies a 16 x 32 block of B's transpose by a
//   32 x 8 block of A's, and adds up in 32 bits. A work-item reads its words straight from local memory: the words
//   to spare put those of a sub-group into different banks. Without TENSOR, work-items multiply in plain C.
// Why: tensor cores multiply bytes, but no larger integers. An H200 has twice as many operations for bytes as for
//   half precision, and ten products of bytes are still less work than one of 32-bit integers without them.
// Cost: a pass over the digits for each line: ten bytes are read where an element has four.
// Error: none. Sums that overflow lose multiples of 2^32, as NumPy's int32 does.
// Work-group: ITEMS. Local memory: 2*TILE_K*(TILE_M + TILE_N + 16) bytes. Pack: work-group (PACK, PACK).
// Limits: m, n and k multiples of the tile's; TILE_M and TILE_N multiples of 4, WORK_M and WORK_N; TILE_K a multiple
//   of 4. With TENSOR, WORK_M is a multiple of 8, WORK_N of 16, and TILE_K of 32.
// Runs on: any device; with TENSOR, NVIDIA's GPUs of compute capability 8.0 and later, through NVIDIA's OpenCL.
// After: Ootomo, Ozaki and Yokota, "DGEMM on integer matrix multiplication unit", 2024; NVIDIA, "Parallel thread
//   execution ISA", mma.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory, in digits"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item, or per sub-group with TENSOR"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item, or per sub-group with TENSOR"
#endif
#ifndef TENSOR
#error "TENSOR: 1 for tensor cores, 0 for plain C"
#endif
#ifndef PACK
#error "PACK: side of the square of words that a work-group packs"
#endif

#define DIGITS 4
#define SIGNS 0x80808080u                // the highest bit of each digit
#define WORDS (TILE_K / 4)               // along k, of a tile
#define PITCH(tile) ((tile) + 8)
#define TEAM (TENSOR ? 32 : 1)           // work-items that compute WORK_M x WORK_N elements of C together
#define TEAMS_M (TILE_M / WORK_M)
#define TEAMS_N (TILE_N / WORK_N)
#define ITEMS (TEAMS_M * TEAMS_N * TEAM)
#define SUMS (WORK_M * WORK_N / TEAM)    // of a work-item
#define LOADS(tile) (WORDS * (tile) / 4 / ITEMS)

// Write the digits of A, or of B's transpose. Element (row, p) is from[row*row_step + p*k_step].
__kernel __attribute__((reqd_work_group_size(PACK, PACK, 1)))
void pack(const int rows, const int k, const int row_step, const int k_step, const int highest_first,
          __global const uint* restrict from, __global uint* restrict to) {
  const int row = get_group_id(0) * PACK + get_local_id(0), word = get_group_id(1) * PACK + get_local_id(1);
  if (row >= rows || word >= k / 4) return;
  uint x[4];
  // A byte above 127 carries 1 to the next digit, and counts as 256 less: 128 is added to each digit and taken away.
  for (int p = 0; p < 4; p++) x[p] = (from[row * row_step + (word * 4 + p) * k_step] + SIGNS) ^ SIGNS;
  for (int d = 0; d < DIGITS; d++) {
    uint four = 0;
    for (int p = 0; p < 4; p++) four |= (x[p] >> 8 * d & 255) << 8 * p;
    to[((highest_first ? DIGITS - 1 - d : d) * (k / 4) + word) * rows + row] = four;
  }
}

// Load this work-item's part of the tile at `from`, whose rows of words are `pitch` vectors apart.
static inline void fetch(__global const uint4* from, const int pitch, const int tile, const int item, uint4* to) {
  #pragma unroll
  for (int load = 0; load < LOADS(tile); load++) {
    const int vector = load * ITEMS + item;
    to[load] = from[vector / (tile / 4) * pitch + vector % (tile / 4)];
  }
}

// Store what a work-item has loaded into a tile in local memory.
static inline void keep(const uint4* from, const int tile, const int item, __local uint4* to) {
  #pragma unroll
  for (int load = 0; load < LOADS(tile); load++) {
    const int vector = load * ITEMS + item;
    to[vector / (tile / 4) * (PITCH(tile) / 4) + vector % (tile / 4)] = from[load];
  }
}

#if TENSOR
#define BLOCKS_M (WORK_M / 8)
#define BLOCKS_N (WORK_N / 16)
#define ROW_0 (item / 32 % TEAMS_M * WORK_M)  // where the sub-group's part of the tile begins
#define COLUMN_0 (item / 32 / TEAMS_M * WORK_N)
// Of each block of 8 rows and 16 columns of C, a work-item has two neighbours of a column, and two eight columns on.
#define ROW(e) (ROW_0 + (e) / 4 % BLOCKS_M * 8 + item % 4 * 2 + (e) % 2)
#define COLUMN(e) (COLUMN_0 + (e) / 4 / BLOCKS_M * 16 + (e) % 4 / 2 * 8 + item % 32 / 4)

// Add the product of 16 columns of B and 8 rows of A, over 32 of k.
static inline void multiply_add(uint* sum, const uint* b_p, const uint* a_p) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(b_p[0]), "r"(b_p[1]), "r"(b_p[2]), "r"(b_p[3]), "r"(a_p[0]), "r"(a_p[1]));
}

// Add the product of two tiles to the sums.
static inline void multiply_tiles(__local const uint* a, __local const uint* b, const int item, uint* sum) {
  #pragma unroll
  for (int word = 0; word < WORDS; word += 8) {
    uint a_p[BLOCKS_M][2];
    #pragma unroll
    for (int i = 0; i < BLOCKS_M * 2; i++)
      a_p[i / 2][i % 2] = a[(word + i % 2 * 4 + item % 4) * PITCH(TILE_M) + ROW_0 + i / 2 * 8 + item % 32 / 4];
    #pragma unroll
    for (int j = 0; j < BLOCKS_N; j++) {
      uint b_p[4];
      #pragma unroll
      for (int x = 0; x < 4; x++)
        b_p[x] = b[(word + x / 2 * 4 + item % 4) * PITCH(TILE_N) + COLUMN_0 + j * 16 + x % 2 * 8 + item % 32 / 4];
      #pragma unroll
      for (int i = 0; i < BLOCKS_M; i++) multiply_add(sum + (j * BLOCKS_M + i) * 4, b_p, a_p[i]);
    }
  }
}
#else
#define ROW(e) ((e) % WORK_M * TEAMS_M + item % TEAMS_M)
#define COLUMN(e) ((e) / WORK_M * TEAMS_N + item / TEAMS_M)

// Return the sum of the products of four digits each.
static inline uint multiply_four(const uint a, const uint b) {
  const char4 x = as_char4(a), y = as_char4(b);
  return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}

// Add the product of two tiles to the sums.
static inline void multiply_tiles(__local const uint* a, __local const uint* b, const int item, uint* sum) {
  for (int word = 0; word < WORDS; word++) {
    uint a_p[WORK_M];
    #pragma unroll
    for (int i = 0; i < WORK_M; i++) a_p[i] = a[word * PITCH(TILE_M) + ROW(i)];
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) {
      const uint b_p = b[word * PITCH(TILE_N) + COLUMN(j * WORK_M)];
      #pragma unroll
      for (int i = 0; i < WORK_M; i++) sum[j * WORK_M + i] += multiply_four(a_p[i], b_p);
    }
  }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void multiply(const int m, const int n, const int k, __global const uint4* restrict a_d,
              __global const uint4* restrict b_d, __global uint* restrict c) {
  __local uint4 tile_a[2][WORDS * PITCH(TILE_M) / 4], tile_b[2][WORDS * PITCH(TILE_N) / 4];
  const int item = get_local_id(0), row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;
  uint sum[SUMS];
  #pragma unroll
  for (int e = 0; e < SUMS; e++) sum[e] = 0;

  int now = 0;
  for (int s = DIGITS - 1; s >= 0; s--) {
    #pragma unroll
    for (int e = 0; e < SUMS; e++) sum[e] <<= 8;
    // Digits 0 to s of A and s to 0 of B, as matrices with (s + 1)*k/4 rows of words.
    const int words = (s + 1) * (k / 4);
    __global const uint4* from_a = a_d + row_0 / 4;
    __global const uint4* from_b = b_d + (DIGITS - 1 - s) * (k / 4) * (n / 4) + column_0 / 4;
    uint4 next_a[LOADS(TILE_M)], next_b[LOADS(TILE_N)];
    fetch(from_a, m / 4, TILE_M, item, next_a);
    fetch(from_b, n / 4, TILE_N, item, next_b);
    for (int word = 0; word < words; word += WORDS) {
      keep(next_a, TILE_M, item, tile_a[now]);
      keep(next_b, TILE_N, item, tile_b[now]);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (word + WORDS < words) {
        fetch(from_a + (word + WORDS) * (m / 4), m / 4, TILE_M, item, next_a);
        fetch(from_b + (word + WORDS) * (n / 4), n / 4, TILE_N, item, next_b);
      }
      multiply_tiles((__local const uint*)tile_a[now], (__local const uint*)tile_b[now], item, sum);
      now = 1 - now;
    }
  }

  #pragma unroll
  for (int e = 0; e < SUMS; e++) c[(column_0 + COLUMN(e)) * m + row_0 + ROW(e)] = sum[e];
}
