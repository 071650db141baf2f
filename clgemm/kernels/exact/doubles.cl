// C = A B from panels of doubles, or C = C + A B with `adds`, as exact/tiles.cl does, by the tensor cores of compute
// capability 9.0 (mma.sync). Arguments and panels are those of exact/tiles.cl.
// A work-group of eight warps computes TILE x TILE of C; each warp half of its rows and a quarter of its columns, in blocks of
// 16 x 8. STAGES times STEPS of k lie in local memory: they arrive while earlier ones are multiplied.
// Elsewhere than on NVIDIA's GPUs this is written without tensor cores, for tests.
// Work-groups: matrices x panels of A x panels of B. Local: 2*STAGES*STEPS*PITCH doubles.
// After: NVIDIA, "Parallel thread execution ISA", mma, cp.async.
#ifndef TILE
#error "TILE: rows and columns of C of a work-group"
#endif
#ifndef STEPS
#error "STEPS: steps over k of a stage, a multiple of 8"
#endif
#ifndef MMA_K
#error "MMA_K: steps over k of an instruction: 4, 8 or 16"
#endif
#ifndef STAGES
#error "STAGES: in local memory"
#endif
#define ITEMS 256
#define PITCH (TILE + 4)  // doubles, so that no two work-items need the same bank of local memory at once
#define BLOCKS_M (TILE / 2 / 16)
#define BLOCKS_N (TILE / 4 / 8)
#define STAGE (STEPS * PITCH)

// Begin to copy STEPS of a panel to local memory.
static inline void begin_stage(__local double* to, __global const double* from) {
  for (int i = get_local_id(0); i < STEPS * TILE / 2; i += ITEMS) {
    __local double* const here = to + i / (TILE / 2) * PITCH + i % (TILE / 2) * 2;
#ifdef __NV_CL_C_VERSION
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((uint)(ulong)here), "l"(from + 2 * i));
#else
    here[0] = from[2 * i], here[1] = from[2 * i + 1];
#endif
  }
}

static inline void end_copies(void) {
#ifdef __NV_CL_C_VERSION
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait until all stages but the last STAGES - 2 have arrived, for all work-items.
static inline void wait_for_stage(void) {
#ifdef __NV_CL_C_VERSION
  asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
#endif
}

#ifdef __NV_CL_C_VERSION
// Add the product of a block of 16 x MMA_K of A and one of MMA_K x 8 of B to sums.
static inline void add_block(double* sum, const double* a, const double* b) {
#if MMA_K == 4
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3]) : "d"(a[0]), "d"(a[1]), "d"(b[0]));
#elif MMA_K == 8
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void exact_doubles(const int m, const int n, const int depth, const int adds, const int swizzle, const int above,
                   const int4 counts,
                   __global const double* restrict a, __global const double* restrict b,
                   __global STORED_TYPE* restrict c, const long c_offset, const long c_row, const long c_column,
                   const long4 c_strides) {
  __local __attribute__((aligned(16))) double stages_a[STAGES * STAGE], stages_b[STAGES * STAGE];
  const int panels_m = (m + TILE - 1) / TILE, panels_n = (n + TILE - 1) / TILE;
  const int panels_a = TRIANGLE ? panels_n : panels_m, tiles = tiles_of_rows(panels_m, panels_n - above, TILE, TILE);
  const uint group = get_group_id(0), matrix = group / tiles;
  Place place = swizzled(group % tiles, panels_m, panels_n - above, swizzle, TILE, TILE);
  place.n += above;
  const int warp = get_local_id(0) / 32, lane = get_local_id(0) % 32;
  const int warp_m = warp % 2 * (TILE / 2) + lane / 4, warp_n = warp / 2 * (TILE / 4) + lane / 4;
  a += ((long)matrix * panels_a + above + place.m) * depth * TILE;
  b += ((long)matrix * panels_n + place.n) * depth * TILE;
  double sum[BLOCKS_M][BLOCKS_N][4];
  #pragma unroll
  for (int i = 0; i < BLOCKS_M; i++) {
    #pragma unroll
    for (int j = 0; j < BLOCKS_N; j++) {
      #pragma unroll
      for (int x = 0; x < 4; x++) sum[i][j][x] = 0;
    }
  }
  const int count = depth / STEPS;
  for (int stage = 0; stage < STAGES - 1; stage++) {
    if (stage < count) {
      begin_stage(stages_a + stage * STAGE, a + stage * STEPS * TILE);
      begin_stage(stages_b + stage * STAGE, b + stage * STEPS * TILE);
    }
    end_copies();
  }
  for (int stage = 0; stage < count; stage++) {
    wait_for_stage();
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = stage + STAGES - 1;
    if (next < count) {
      begin_stage(stages_a + next % STAGES * STAGE, a + (long)next * STEPS * TILE);
      begin_stage(stages_b + next % STAGES * STAGE, b + (long)next * STEPS * TILE);
    }
    end_copies();
    __local const double* const here_a = stages_a + stage % STAGES * STAGE;
    __local const double* const here_b = stages_b + stage % STAGES * STAGE;
#ifdef __NV_CL_C_VERSION
    #pragma unroll
    for (int p = 0; p < STEPS; p += MMA_K) {
      double of_a[BLOCKS_M][MMA_K / 2], of_b[BLOCKS_N][MMA_K / 4];
      #pragma unroll
      for (int i = 0; i < BLOCKS_M; i++) {
        #pragma unroll
        for (int x = 0; x < MMA_K / 2; x++) of_a[i][x] = here_a[(p + x / 2 * 4 + lane % 4) * PITCH + warp_m + i * 16 + x % 2 * 8];
      }
      #pragma unroll
      for (int j = 0; j < BLOCKS_N; j++) {
        #pragma unroll
        for (int x = 0; x < MMA_K / 4; x++) of_b[j][x] = here_b[(p + x * 4 + lane % 4) * PITCH + warp_n + j * 8];
      }
      #pragma unroll
      for (int i = 0; i < BLOCKS_M; i++) {
        #pragma unroll
        for (int j = 0; j < BLOCKS_N; j++) add_block(sum[i][j], of_a[i], of_b[j]);
      }
    }
#else
    for (int i = 0; i < BLOCKS_M; i++)
      for (int j = 0; j < BLOCKS_N; j++)
        for (int x = 0; x < 4; x++)
          for (int p = 0; p < STEPS; p++)
            sum[i][j][x] += here_a[p * PITCH + warp_m + i * 16 + x / 2 * 8] *
                            here_b[p * PITCH + warp_n - lane / 4 + j * 8 + lane % 4 * 2 + x % 2];
#endif
  }
  c += PARTS * (c_offset + matrix_offset(matrix, counts, c_strides));
  const int row_0 = place.m * TILE + warp_m, column_0 = place.n * TILE + warp_n - lane / 4 + lane % 4 * 2;
  #pragma unroll
  for (int i = 0; i < BLOCKS_M; i++) {
    #pragma unroll
    for (int j = 0; j < BLOCKS_N; j++) {
      #pragma unroll
      for (int x = 0; x < 4; x++) {
        const int row = row_0 + i * 16 + x / 2 * 8, column = column_0 + j * 8 + x % 2;
        if (row < m && column < n) store_lane(c, PLACE_OF(row, column), sum[i][j][x], adds);
      }
    }
  }
}
