// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 8.0 and later, with mma.sync, the instruction
// of one warp. Arithmetic, tiles, arguments and error are those of tensor_core/wgmma.cl.
//
// Eight warps compute 64 x 32 of C each. A quarter of a tile of A and of B is copied to local memory (cp.async) while
// the quarter before is multiplied. Work-groups are persistent: each takes one tile of C after another.
// Work-groups: any number, 256 work-items each. Local: 2*(PART_BYTES + 8*TILE_ROWS) = 34 KiB.
// After: NVIDIA, "Parallel thread execution ISA", mma; and the sources of tensor_core/wgmma.cl.
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles that work-groups visit together"
#endif
#define TILE_M TILE_ROWS
#define TILE_N TILE_ROWS
#define ITEMS 256
#define QUARTER_BYTES (PART_BYTES / 4)    // two of the eight cores of a part
#define STAGE_BYTES (4 * QUARTER_BYTES)   // high and low of A, high and low of B
#define SCALES_BYTES (2 * 4 * TILE_ROWS)  // of A, of B

static inline void copy_16(uint to, __global const uchar* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

// Loads four matrices of 8 rows x 16 bytes; each work-item gives the address of a row.
static inline void load_matrices(uint* into, uint from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(from) : "memory");
}

// sum[16 rows][8 columns] += a*b, over two cores of k.
static inline void multiply(float* sum, const uint* a, const uint* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Start copying a quarter of the tiles of A and of B, with the first quarter also their scales.
static inline void fetch(uint stage, uint scales, __global const uchar* tile_a, __global const uchar* tile_b, int quarter) {
  const int item = get_local_id(0);
  #pragma unroll
  for (int part = 0; part < 4; part++)
    copy_16(stage + part * QUARTER_BYTES + item * 16,
            (part < 2 ? tile_a : tile_b) + part % 2 * PART_BYTES + quarter * QUARTER_BYTES + item * 16);
  if (quarter == 0 && item < SCALES_BYTES / 16)
    copy_16(scales + item * 16, (item < 32 ? tile_a : tile_b) + SCALES_AT + item % 32 * 16);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_product(const int matrices, const int m, const int n, const int k, const int most, const float alpha, const float beta,
                    __global const float* a, const long a_offset, const long a_row, const long a_column, const long a_stride,
                    __global const float* b, const long b_offset, const long b_row, const long b_column, const long b_stride,
                    __global const uchar* packed_a, __global const uchar* packed_b,
                    __global float* c, const long c_offset, const long c_row, const long c_column, const long c_stride,
                    __global const uint* count, __global uint* count_next) {
  __local uchar stages[2 * STAGE_BYTES] __attribute__((aligned(1024)));
  __local uchar scales[2 * SCALES_BYTES] __attribute__((aligned(1024)));
  const int item = get_local_id(0), warp = item / 32, lane = item % 32;
#if GUARD
  if (item == 0 && get_group_id(0) == 0) *count_next = 0;  // the next product's
  if (*count > most) return;
#endif
  const int depths = depths_of(k, false);
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
  const int tiles = tiles_of_rows(tiles_m, tiles_n, TILE_M, TILE_N);  // of each matrix
  const long panel_bytes = (long)depths * TILE_BYTES;
  const int warp_m = warp % 2 * 64, warp_n = warp / 2 * 32;
  const uint stages_at = (uint)(ulong)(__local void*)stages, scales_at = (uint)(ulong)(__local void*)scales;
  // Of A 16 rows of two cores, of B 16 columns of two cores: 16 bytes a slot.
  const uint rows_at = (lane / 16 * TILE_ROWS + warp_m + lane % 16) * 16;
  const uint columns_at = (lane / 8 % 2 * TILE_ROWS + warp_n + lane / 16 * 8 + lane % 8) * 16;

  const int panels_a = (a_stride == 0 ? 1 : matrices) * tiles_m, panels_b = (b_stride == 0 ? 1 : matrices) * tiles_n;

  for (int index = get_group_id(0); index < matrices * tiles; index += get_num_groups(0)) {
    const int matrix = index / tiles;
    const Place place = swizzled(index % tiles, tiles_m, tiles_n, SWIZZLE, TILE_M, TILE_N);
    const int tile_m = place.m, tile_n = place.n;
    const int panel_a = (a_stride == 0 ? 0 : matrix) * tiles_m + tile_m, panel_b = (b_stride == 0 ? 0 : matrix) * tiles_n + tile_n;
    __global const uchar* from_a = packed_a + panel_a * panel_bytes;
    __global const uchar* from_b = packed_b + panel_b * panel_bytes;
    float total[4][16], sum[4][16];
    #pragma unroll
    for (int i = 0; i < 64; i++) total[i / 16][i % 16] = sum[i / 16][i % 16] = 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);  // the tile before has been read
    fetch(stages_at, scales_at, from_a, from_b, 0);

    #pragma unroll 1
    for (int step = 0; step < 4 * depths; step++) {
      const int depth = step / 4, next = step + 1;
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      barrier(CLK_LOCAL_MEM_FENCE);
      if (next < 4 * depths) {
        const long way = (long)(next / 4) * TILE_BYTES;
        fetch(stages_at + next % 2 * STAGE_BYTES, scales_at + next / 4 % 2 * SCALES_BYTES, from_a + way, from_b + way, next % 4);
      }
      const uint at = stages_at + step % 2 * STAGE_BYTES;
      uint high_b[2][4], low_b[2][4];
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        load_matrices(high_b[j], at + 2 * QUARTER_BYTES + columns_at + j * 256);
        load_matrices(low_b[j], at + 3 * QUARTER_BYTES + columns_at + j * 256);
      }
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        uint high_a[4], low_a[4];
        load_matrices(high_a, at + rows_at + i * 256);
        load_matrices(low_a, at + QUARTER_BYTES + rows_at + i * 256);
        #pragma unroll
        for (int j = 0; j < 4; j++) multiply(sum[i] + 4 * j, high_a, low_b[j / 2] + j % 2 * 2);
        #pragma unroll
        for (int j = 0; j < 4; j++) multiply(sum[i] + 4 * j, low_a, high_b[j / 2] + j % 2 * 2);
        #pragma unroll
        for (int j = 0; j < 4; j++) multiply(sum[i] + 4 * j, high_a, high_b[j / 2] + j % 2 * 2);
      }
      if (step % 4 == 3) {
        __local const float* scales_a = (__local const float*)(scales + depth % 2 * SCALES_BYTES) + warp_m + own_row();
        __local const float* scales_b = (__local const float*)(scales + depth % 2 * SCALES_BYTES) + TILE_ROWS + warp_n + own_column();
        #pragma unroll
        for (int i = 0; i < 64; i++) {
          const int e = i % 16;
          const float scale = scales_a[i / 16 * 16 + (e & 2)] * scales_b[(e & 8) * 2 + (e & 4) / 2 + (e & 1)];
          total[i / 16][e] = fma(sum[i / 16][e], scale, total[i / 16][e]);
          sum[i / 16][e] = 0.0f;
        }
      }
    }

    const int rows = m - tile_m * TILE_M, columns = n - tile_n * TILE_N;
    __global float* c_tile = c + c_offset + matrix * c_stride + tile_m * TILE_M * c_row + tile_n * TILE_N * c_column;
    const bool vectors = c_column == 1 && c_row % 4 == 0 && ((ulong)c_tile & 15) == 0 && columns >= TILE_N;
    barrier(CLK_LOCAL_MEM_FENCE);  // store_runs uses the stages' memory
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int first = warp_m + i * 16;
      __global float* c_warp = c_tile + first * c_row + warp_n * c_column;
      if (vectors)
        store_vectors(total[i], alpha, beta, c_warp, c_row, rows - first);
      else
        store_runs(total[i], 1, alpha, beta, c_warp, c_row, c_column, rows - first, columns - warp_n,
                   (__local float*)stages + warp * CORNER);
    }
#if GUARD
    if (*count != 0) {
      const Tile t = {
          from_a, from_b, directory_of(packed_a, panels_a * depths) + panel_a * depths,
          directory_of(packed_b, panels_b * depths) + panel_b * depths,
          a + a_offset + matrix * a_stride + tile_m * TILE_M * a_row,
          b + b_offset + matrix * b_stride + tile_n * TILE_N * b_row, c_tile,
          a_row, a_column, b_row, b_column, c_row, c_column, rows, columns, depths, depth_of_tile(false), alpha};
      const uint any = panels_with_outliers(t.lengths_a, t.lengths_b, 1, depths);
      if (any != 0) warp_barrier();
      for (int i = 0; i < 4; i++) {
        if (any & 1) add_outliers_of_a(&t, warp_m + i * 16, warp_n, warp_n + 32);
        if (any & 2) add_outliers_of_b(&t, warp_m + i * 16, warp_n, warp_n + 32, 0);
      }
    }
#endif
  }
}
