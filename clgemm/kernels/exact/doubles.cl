// C = A B from panels of doubles, or C = C + A B with `adds`, as exact/tiles.cl does, by the tensor cores of compute
// capability 9.0 (mma.sync). Arguments and panels are those of exact/tiles.cl.
// Eight warps of a work-group compute TILE x TILE of C; each half of its rows and a quarter of its columns, in blocks of
// 16 x 8. Another only feeds them: it has the copy engine bring STEPS of k of both panels to local memory, up to STAGES
// ahead. No warp waits for another one of the eight.
// Elsewhere than on NVIDIA's GPUs this is written without tensor cores, for tests.
// Work-groups: matrices x panels of A x panels of B. Local: 2*STAGES*STEPS*PITCH doubles, and barriers.
// After: NVIDIA, "Parallel thread execution ISA", mma, cp.async.bulk.
#ifndef TILE
#error "TILE: rows and columns of C of a work-group"
#endif
#ifndef STEPS
#error "STEPS: steps over k of a stage, and of an instruction: 16"
#endif
#ifndef STAGES
#error "STAGES: in local memory"
#endif
#define ITEMS 384
#define MULTIPLIERS 256  // of them
#define PITCH (TILE + 4)  // doubles, so that no two work-items need the same bank of local memory at once
#define BLOCKS_M (TILE / 2 / 16)
#define BLOCKS_N (TILE / 4 / 8)
#define STAGE (STEPS * PITCH)

#ifdef __NV_CL_C_VERSION
#define FULL(stage) (base + (stage) * 8)
#define EMPTY(stage) (base + 64 + (stage) * 8)
static inline void warp_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// Add the product of a block of 16 x 16 of A and one of 16 x 8 of B to sums.
static inline void add_block(double* sum, const double* a, const double* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

// What a work-item needs of a stage.
typedef struct {
  double a[BLOCKS_M][STEPS / 2], b[BLOCKS_N][STEPS / 4];
} Parts;

static inline __attribute__((always_inline)) void load_parts(Parts* parts, __local const double* a, __local const double* b) {
  #pragma unroll
  for (int x = 0; x < STEPS / 2; x++) {
    #pragma unroll
    for (int i = 0; i < BLOCKS_M; i++) parts->a[i][x] = a[x / 2 * 4 * PITCH + i * 16 + x % 2 * 8];
  }
  #pragma unroll
  for (int x = 0; x < STEPS / 4; x++) {
    #pragma unroll
    for (int j = 0; j < BLOCKS_N; j++) parts->b[j][x] = b[x * 4 * PITCH + j * 8];
  }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void exact_doubles(const int m, const int n, const int depth, const int adds, const int swizzle, const int above,
                   const int4 counts,
                   __global const double* restrict a, __global const double* restrict b,
                   __global STORED_TYPE* restrict c, const long c_offset, const long c_row, const long c_column,
                   const long4 c_strides) {
  __local __attribute__((aligned(128))) double stages_a[STAGES * STAGE], stages_b[STAGES * STAGE];
  const int panels_m = (m + TILE - 1) / TILE, panels_n = (n + TILE - 1) / TILE;
  const int panels_a = TRIANGLE ? panels_n : panels_m, tiles = tiles_of_rows(panels_m, panels_n - above, TILE, TILE);
  const uint group = get_group_id(0), matrix = group / tiles;
  Place place = swizzled(group % tiles, panels_m, panels_n - above, swizzle, TILE, TILE);
  place.n += above;
  const int warp = get_local_id(0) % MULTIPLIERS / 32, lane = get_local_id(0) % 32;
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
#ifdef __NV_CL_C_VERSION
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks setmaxnreg
  __local __attribute__((aligned(8))) ulong barriers[16];
  const uint base = (uint)(ulong)barriers;
  int at = 0;
  uint round = 0;  // parity of the uses of a stage
  if (get_local_id(0) == 0) {
    for (int i = 0; i < STAGES; i++) {
      initialise(FULL(i), 1);
      initialise(EMPTY(i), MULTIPLIERS / 32);
    }
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) >= MULTIPLIERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (get_local_id(0) >= MULTIPLIERS + 32) return;
    fence_copies();
    for (int stage = 0; stage < count; stage++) {
      if (lane == 0) {
        wait_for(EMPTY(at), round ^ 1);
        expect(FULL(at), 2 * STEPS * TILE * 8);
      }
      warp_barrier();
      for (int i = lane; i < 2 * STEPS; i += 32) {  // a step of A or of B
        __local double* const to = (i < STEPS ? stages_a : stages_b) + at * STAGE + i % STEPS * PITCH;
        __global const double* const from = (i < STEPS ? a : b) + ((long)stage * STEPS + i % STEPS) * TILE;
        fetch((uint)(ulong)to, (__global const uchar*)from, TILE * 8, FULL(at));
      }
      next_stage(&at, &round, STAGES);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  for (int stage = 0; stage < count; stage++) {
    __local const double* const here_a = stages_a + at * STAGE + lane % 4 * PITCH + warp_m;
    __local const double* const here_b = stages_b + at * STAGE + lane % 4 * PITCH + warp_n;
    wait_for(FULL(at), round);
    Parts parts;
    load_parts(&parts, here_a, here_b);
    warp_barrier();  // all its work-items have loaded
    if (lane == 0) arrive(EMPTY(at));
    #pragma unroll
    for (int i = 0; i < BLOCKS_M; i++) {
      #pragma unroll
      for (int j = 0; j < BLOCKS_N; j++) add_block(sum[i][j], parts.a[i], parts.b[j]);
    }
    next_stage(&at, &round, STAGES);
  }
#else
  for (int stage = 0; stage < count; stage++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_local_id(0); i < STEPS * TILE; i += ITEMS) {
      stages_a[i / TILE * PITCH + i % TILE] = a[(long)stage * STEPS * TILE + i];
      stages_b[i / TILE * PITCH + i % TILE] = b[(long)stage * STEPS * TILE + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < BLOCKS_M; i++)
      for (int j = 0; j < BLOCKS_N; j++)
        for (int x = 0; x < 4; x++)
          for (int p = 0; p < STEPS; p++)
            sum[i][j][x] += stages_a[p * PITCH + warp_m + i * 16 + x / 2 * 8] *
                            stages_b[p * PITCH + warp_n - lane / 4 + j * 8 + lane % 4 * 2 + x % 2];
  }
  if (get_local_id(0) >= MULTIPLIERS) return;
#endif
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
