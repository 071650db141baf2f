// Rung 16, asynchronous copies: the device copies the tiles, not the work-items.
//   a[p*m + i]       m x k        tile_a[t % 2][p][i]    vectors along i
//   b_t[p*n + j]     n x k        tile_b[t % 2][p][j]    vectors along j; B transposed by transpose.cl
//   c[j*m + i]       m x n                               vectors along i
// New: OpenCL's async_work_group_copy copies the next tiles from global to local memory, column by column,
//   while the work-items multiply the current ones. An event says when the copies are complete:
//
//     copy 0 | wait, copy 1, multiply 0 | wait, copy 2, multiply 1 | ...
//
// Why: in rung 9 each work-item holds its part of the next tiles in registers meanwhile, and computes where
//   it belongs. Here it does neither. Devices with an engine for such copies do them on the side. Others
//   share them among the work-items, and then this rung gains nothing.
// Cost: the compiler decides how to copy. It may use narrower loads than rung 13, or wait at once.
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 8*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: m, n, k multiples of TILE_M, TILE_N, TILE_K; TILE_M and TILE_N multiples of WORK_M and WORK_N, and
//   those of WIDTH; WIDTH 1, 2, 4 or 8; TILE_K even. The tiles need not be shared evenly.
// Runs on: any device, through OpenCL. CUDA has no such function, so that NVRTC cannot compile it.
// After: the OpenCL 1.0 specification, section 6.11.10.
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

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ROWS (WORK_M / WIDTH)  // vectors of rows per work-item
#define COLUMNS (WORK_N / WIDTH)

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

// A row of B in registers, which is read in vectors and used in floats.
typedef union {
  FLOATS wide[COLUMNS];
  float single[WORK_N];
} RowOfB;

// Start to copy the tiles at `a` and `b`, whose columns are `pitch` vectors apart, to local memory.
static inline event_t copy(__local FLOATS* tile_a, __local FLOATS* tile_b, __global const FLOATS* a,
                           __global const FLOATS* b, const int pitch_a, const int pitch_b) {
  event_t done = 0;
  for (int p = 0; p < TILE_K; p++) {
    done = async_work_group_copy(tile_a + p * (TILE_M / WIDTH), a + p * pitch_a, TILE_M / WIDTH, done);
    done = async_work_group_copy(tile_b + p * (TILE_N / WIDTH), b + p * pitch_b, TILE_N / WIDTH, done);
  }
  return done;
}

// Read the column of A and the row of B that step p of the tiles multiplies.
static inline void read(__local const FLOATS* a, __local const FLOATS* b, const int p, const int item_m,
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
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;
  a += row_0 / WIDTH;
  b_t += column_0 / WIDTH;

  FLOATS sum[WORK_N][ROWS];
  #pragma unroll
  for (int j = 0; j < WORK_N; j++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) sum[j][i] = (FLOATS)(0.0f);

  event_t done = copy(tile_a[0], tile_b[0], a, b_t, m / WIDTH, n / WIDTH);
  int now = 0;
  for (int depth = 0; depth < k; depth += TILE_K) {
    wait_group_events(1, &done);
    barrier(CLK_LOCAL_MEM_FENCE);  // all work-items have read the tiles that the next copy overwrites

    if (depth + TILE_K < k)
      done = copy(tile_a[1 - now], tile_b[1 - now], a + (depth + TILE_K) * (m / WIDTH),
                  b_t + (depth + TILE_K) * (n / WIDTH), m / WIDTH, n / WIDTH);
    FLOATS a_even[ROWS], a_odd[ROWS];
    RowOfB b_even, b_odd;
    read(tile_a[now], tile_b[now], 0, item_m, item_n, a_even, &b_even);
    for (int p = 0; p < TILE_K; p += 2) {
      read(tile_a[now], tile_b[now], p + 1, item_m, item_n, a_odd, &b_odd);
      multiply_add(sum, a_even, &b_even);
      if (p + 2 < TILE_K) read(tile_a[now], tile_b[now], p + 2, item_m, item_n, a_even, &b_even);
      multiply_add(sum, a_odd, &b_odd);
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
