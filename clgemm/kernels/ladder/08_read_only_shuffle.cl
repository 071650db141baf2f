// Rung 8, read-only loads and shuffles: features of GPUs that OpenCL 1.2 does not have.
//   a[p*m + i]       m x k        tile_a[p][i]    vectors along i
//   b_t[p*n + j]     n x k        tile_b[p][j]    vectors along j; B transposed by transpose.cl
//   c[j*m + i]       m x n
// New, independent of each other:
//   READ_ONLY  loads A and B through the read-only cache, for data that no kernel writes meanwhile.
//   SHUFFLE    reads B's row from local memory once for WORK_N work-items: each reads one element, and
//              the work-items of a sub-group exchange the elements between their registers.
// Why: READ_ONLY adds a cache where ordinary loads have none (Kepler). SHUFFLE replaces WORK_N reads of
//   local memory by one read and WORK_N instructions.
// Both are written in NVIDIA's assembly inside OpenCL C (PTX 1) and in CUDA's built-in functions. OpenCL's
//   sub-groups have shuffles but no read-only loads. With READ_ONLY 0 and SHUFFLE 0 this is rung 7.
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 4*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: rung 7's. With READ_ONLY: WIDTH 1, 2 or 4. With SHUFFLE: ITEMS_M and LANES multiples of WORK_N,
//   so that the work-items that share a row of B are neighbours; and ITEMS (with OpenCL's sub-groups:
//   ITEMS_M) a multiple of LANES, so that each sub-group is full.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 8.
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
#error "WIDTH: floats per load from global memory"
#endif
#ifndef READ_ONLY
#error "READ_ONLY: 1 for loads through the read-only cache, 0 for ordinary ones"
#endif
#ifndef SHUFFLE
#error "SHUFFLE: 1 if the work-items of a sub-group share B's row, 0 if each reads it from local memory"
#endif
#ifndef LANES
#error "LANES: work-items per sub-group"
#endif
#ifndef PTX
#error "PTX: 1 if OpenCL C may contain NVIDIA's assembly"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define LOADS (TILE_M * TILE_K / WIDTH / ITEMS)  // vectors of each tile that a work-item loads

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

#if !READ_ONLY
#define LOAD(p) (*(p))
#elif defined(__CUDACC__)
#define LOAD(p) read_only(p)  // opencl_to_cuda.h defines it and shuffle()
#elif PTX
#define LOAD(p) JOIN(read_only_, FLOATS)(p)
static inline float read_only_float(__global const float* p) {
  float x;
  asm("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(p));
  return x;
}
static inline float2 read_only_float2(__global const float2* p) {
  float x, y;
  asm("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(p));
  return (float2)(x, y);
}
static inline float4 read_only_float4(__global const float4* p) {
  float x, y, z, w;
  asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(p));
  return (float4)(x, y, z, w);
}
#else
#error "READ_ONLY: this compiler has no read-only loads"
#endif

// shuffle(value, lane) is the `value` of work-item `lane` of the sub-group.
#if !SHUFFLE || defined(__CUDACC__)
#elif PTX
static inline float shuffle(float value, int lane) {
  float other;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(other) : "f"(value), "r"(lane));
  return other;
}
#elif defined(cl_khr_subgroup_shuffle)
#define shuffle(value, lane) sub_group_shuffle(value, lane)
#elif defined(cl_intel_subgroups)
#define shuffle(value, lane) intel_sub_group_shuffle(value, lane)
#else
#error "SHUFFLE: this compiler has no shuffles"
#endif
#if SHUFFLE && !PTX && !defined(__CUDACC__)
#define SUB_GROUPS __attribute__((intel_reqd_sub_group_size(LANES)))
#else
#define SUB_GROUPS
#endif

// A tile that is written in vectors and read in floats.
typedef union {
  FLOATS wide[TILE_K][TILE_M / WIDTH];
  float single[TILE_K][TILE_M];
} Tile;

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1))) SUB_GROUPS
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b_t, __global float* restrict c) {
  __local Tile tile_a, tile_b;
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int item = item_n * ITEMS_M + item_m;
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;
#if SHUFFLE
  const int first_lane = item % LANES / WORK_N * WORK_N;  // the first of the work-items that share this row of B
#endif

  float sum[WORK_M][WORK_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) sum[i][j] = 0.0f;

  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
      const int vector = load * ITEMS + item, p = vector / (TILE_M / WIDTH), i = vector % (TILE_M / WIDTH);
      tile_a.wide[p][i] = LOAD(a + (depth + p) * (m / WIDTH) + row_0 / WIDTH + i);
      tile_b.wide[p][i] = LOAD(b_t + (depth + p) * (n / WIDTH) + column_0 / WIDTH + i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE_K; p++) {
      float b_p[WORK_N];
#if SHUFFLE
      // Of WORK_N adjacent work-items, each reads one element and gives it to the others.
      const float mine = tile_b.single[p][item_m % WORK_N * ITEMS_N + item_n];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) b_p[j] = shuffle(mine, first_lane + j);
#else
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) b_p[j] = tile_b.single[p][j * ITEMS_N + item_n];
#endif
      #pragma unroll
      for (int i = 0; i < WORK_M; i++) {
        const float a_p = tile_a.single[p][i * ITEMS_M + item_m];
        #pragma unroll
        for (int j = 0; j < WORK_N; j++) sum[i][j] += a_p * b_p[j];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++)
      c[(column_0 + j * ITEMS_N + item_n) * m + row_0 + i * ITEMS_M + item_m] = sum[i][j];
}
