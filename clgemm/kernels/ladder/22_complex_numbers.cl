// Rung 22, complex numbers: a complex product is one real product of larger matrices.
//   a[p*m + i]       m x k, complex     a_real: 2m x 2k, real, written by pack
//   b[j*k + p]       k x n, complex     2k x n as it lies, real; b_t: n x 2k, transposed by transpose.cl
//   c[j*m + i]       m x n, complex     2m x n as it lies, real
//   tile_a[t % 2][q][i], tile_b[t % 2][q][j]: rung 12's
// New: a complex number in memory is its real part and then its imaginary part. So B is a real matrix with twice
//   as many rows, and so is C. Only A must be written anew, each element as a block of 2 x 2:
//
//     | re  -im |     | b.re |     | re*b.re - im*b.im |
//     | im   re |  x  | b.im |  =  | im*b.re + re*b.im |
//
//   A kernel, pack, writes these blocks. The kernel that multiplies is rung 12's, word for word. Its sizes are 2m, n
//   and 2k.
// Why: a complex multiply-add is four real ones, and the real product has no more than these. Every kernel for
//   real matrices serves complex ones so, with its tiles, its vectors and its speed.
// Cost: A takes twice its memory, and its elements are read twice. A pass over A writes them.
// Error: gamma(2k) |A| |B| for the real and for the imaginary part, so sqrt(2) times that for an element.
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 8*TILE_K*(TILE_M + TILE_N) bytes. Pack: work-group (PACK, PACK).
// Limits: rung 12's, for 2m, n and 2k.
// Runs on: any device.
// After: Van Zee, "Implementing high-performance complex matrix multiplication via the 1m method", 2020.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector in global memory, local memory and registers"
#endif
#ifndef PACK
#error "PACK: side of the square of elements of A that a work-group packs"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define LOADS (TILE_M * TILE_K / WIDTH / ITEMS)  // vectors of each tile that a work-item loads
#define ROWS (WORK_M / WIDTH)                    // vectors of rows per work-item
#define COLUMNS (WORK_N / WIDTH)

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

#ifdef __CUDACC__
#define LOCAL  // in CUDA an ordinary pointer
#else
#define LOCAL __local
#endif

// Write a complex matrix as a real one, with twice as many rows and columns.
__kernel __attribute__((reqd_work_group_size(PACK, PACK, 1)))
void pack(const int rows, const int columns, __global const float* restrict from, __global float* restrict to) {
  const int row = get_group_id(0) * PACK + get_local_id(0), column = get_group_id(1) * PACK + get_local_id(1);
  if (row >= rows || column >= columns) return;
  const float re = from[(column * rows + row) * 2], im = from[(column * rows + row) * 2 + 1];
  to += (column * 2 * rows + row) * 2;
  to[0] = re, to[1] = im;
  to[2 * rows] = -im, to[2 * rows + 1] = re;  // the next column
}

// A row of B in registers, which is read in vectors and used in floats.
typedef union {
  FLOATS wide[COLUMNS];
  float single[WORK_N];
} RowOfB;

// Load this work-item's part of the tile at `from`, whose columns are `pitch` vectors apart.
static inline void fetch(__global const FLOATS* from, const int pitch, const int item, FLOATS* to) {
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int vector = load * ITEMS + item;
    to[load] = from[vector / (TILE_M / WIDTH) * pitch + vector % (TILE_M / WIDTH)];
  }
}

// Read the column of A and the row of B that step p of the tiles multiplies.
static inline void read(LOCAL const FLOATS* a, LOCAL const FLOATS* b, const int p, const int item_m,
                        const int item_n, FLOATS* a_p, RowOfB* b_p) {
  #pragma unroll
  for (int i = 0; i < ROWS; i++) a_p[i] = a[p * (TILE_M / WIDTH) + i * ITEMS_M + item_m];
  #pragma unroll
  for (int j = 0; j < COLUMNS; j++) b_p->wide[j] = b[p * (TILE_N / WIDTH) + j * ITEMS_N + item_n];
}

// Add the product of a column of A and a row of B to the block of C.
static inline void multiply_add(FLOATS sum[WORK_N][ROWS], const FLOATS* a_p, const RowOfB* b_p) {
  #pragma unroll
  for (int j = 0; j < WORK_N; j++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) sum[j][i] += a_p[i] * b_p->single[j];
}

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b_t, __global FLOATS* restrict c) {
  __local FLOATS tile_a[2][TILE_K * TILE_M / WIDTH], tile_b[2][TILE_K * TILE_N / WIDTH];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int item = item_n * ITEMS_M + item_m;
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;
  a += row_0 / WIDTH;
  b_t += column_0 / WIDTH;

  FLOATS sum[WORK_N][ROWS];
  #pragma unroll
  for (int j = 0; j < WORK_N; j++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) sum[j][i] = (FLOATS)(0.0f);

  FLOATS next_a[LOADS], next_b[LOADS];
  fetch(a, m / WIDTH, item, next_a);
  fetch(b_t, n / WIDTH, item, next_b);
  int now = 0;
  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
      tile_a[now][load * ITEMS + item] = next_a[load];
      tile_b[now][load * ITEMS + item] = next_b[load];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (depth + TILE_K < k) {
      fetch(a + (depth + TILE_K) * (m / WIDTH), m / WIDTH, item, next_a);
      fetch(b_t + (depth + TILE_K) * (n / WIDTH), n / WIDTH, item, next_b);
    }
    for (int p = 0; p < TILE_K; p++) {
      FLOATS a_p[ROWS];
      RowOfB b_p;
      read(tile_a[now], tile_b[now], p, item_m, item_n, a_p, &b_p);
      multiply_add(sum, a_p, &b_p);
    }
    now = 1 - now;
  }

  #pragma unroll
  for (int j = 0; j < WORK_N; j++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const int column = column_0 + (j / WIDTH * ITEMS_N + item_n) * WIDTH + j % WIDTH;
      c[column * (m / WIDTH) + row_0 / WIDTH + i * ITEMS_M + item_m] = sum[j][i];
    }
}
