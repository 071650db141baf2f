// Rung 17, tensor cores: a product in half precision by mma.sync.
//   a[p*m + i]       m x k        a_h[panel][p/8][i % 128][p % 8]    fp16; panel = i/128
//   b[j*k + p]       k x n        b_h[panel][p/8][j % 128][p % 8]    fp16; panel = j/128
//   c[j*m + i]       m x n        fp32
// New: an instruction of a sub-group multiplies a 16 x 16 block by a 16 x 8 block, and adds the result in
//   single precision. A first kernel, pack, rounds A and B to half precision. It stores eight elements along
//   k together, and 128 such groups one after another: a panel of 128 rows of A, or of 128 columns of B.
//   Eight sub-groups of 32 work-items compute 32 rows x 64 columns of C each. The blocks are those of C's
//   transpose, so that a work-item has neighbours of a column of C:
//
//                          16 of k            8 rows of C              8 rows of C
//       16 columns of C   [ b_h' ]   x    [ a_h' ]  16 of k   =    [ c' ]  16 columns of C
//
// How: the tiles come by cp.async, which copies 16 bytes from global to local memory without registers.
//   ldmatrix reads four 8 x 8 blocks at once, as mma.sync wants them.
// Why: a tensor core does in one instruction what 2048 multiply-adds do. An H200 has fifteen times more flops
//   for half precision than for single precision.
// Cost: elements have 11 bits instead of 24.
// Error: at most (2^-10 + 2^-22 + k*2^-23) |A| |B|. Each operand is rounded once, by at most 2^-11. Tensor
//   cores cut off bits when they add. Random errors cancel, so that the largest is mostly far below 2^-11.
//   Elements other than zero must be at least 2^-14, and less than 65520.
// Work-group: 256. Local memory: 512*TILE_K*2 bytes. Pack: work-group 256, tiles of 128 x TILE_K.
// Limits: m and n multiples of 128; k a multiple of TILE_K; TILE_K 16, 32 or 48.
// Runs on: NVIDIA's GPUs of compute capability 8.0 and later, through NVIDIA's OpenCL.
// After: NVIDIA, "Parallel thread execution ISA", mma, ldmatrix and cp.async.
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory"
#endif
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles in a band"
#endif

#define SIDE 128                  // rows of A and columns of B per tile
#define ITEMS 256
#define CORES (TILE_K / 8)        // groups of eight elements along k, in a tile
#define VECTORS (SIDE * CORES)    // a vector holds one such group of one row: eight halves, 16 bytes
#define LOADS (VECTORS / ITEMS)   // vectors of each tile that a work-item loads

// Round two floats to half precision. The first is in the lower half of the result.
static inline uint halves(const float first, const float second) {
  uint both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

// Round one tile of 128 rows of A, or of B's transpose. Element (row, p) is from[row*row_step + p*k_step].
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void pack(const int k, const int row_step, const int k_step, __global const float* restrict from,
          __global uint4* restrict to) {
  from += get_group_id(0) * SIDE * row_step + get_group_id(1) * TILE_K * k_step;
  to += (get_group_id(0) * (k / TILE_K) + get_group_id(1)) * VECTORS;
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int vector = load * ITEMS + get_local_id(0);
    // Neighbours read neighbouring elements: along the rows of A, and along k of B.
    const int row = row_step == 1 ? vector % SIDE : vector / CORES;
    const int core = row_step == 1 ? vector / SIDE : vector % CORES;
    float x[8];
    #pragma unroll
    for (int p = 0; p < 8; p++) x[p] = from[row * row_step + (core * 8 + p) * k_step];
    uint4 eight;
    eight.x = halves(x[0], x[1]), eight.y = halves(x[2], x[3]);
    eight.z = halves(x[4], x[5]), eight.w = halves(x[6], x[7]);
    to[core * SIDE + row] = eight;
  }
}

// Start to copy one vector to local memory.
static inline void copy(const uint to, __global const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

// Start to copy a tile of A and one of B.
static inline void fetch(const uint tile_a, const uint tile_b, __global const uint4* a_h,
                         __global const uint4* b_h) {
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int vector = load * ITEMS + get_local_id(0);
    copy(tile_a + vector * 16, a_h + vector);
    copy(tile_b + vector * 16, b_h + vector);
  }
}

// Read four blocks of 8 x 8. Each work-item of the sub-group gives the address of one row.
static inline void read(const uint row, uint* blocks) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3]) : "r"(row) : "memory");
}

// Add the product of 16 columns of B and 8 rows of A, over 16 of k.
static inline void multiply_add(float* sum, const uint* b_p, const uint* a_p) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
               "{%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(b_p[0]), "r"(b_p[1]), "r"(b_p[2]), "r"(b_p[3]), "r"(a_p[0]), "r"(a_p[1]));
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void multiply(const int m, const int n, const int k, __global const uint4* restrict a_h,
              __global const uint4* restrict b_h, __global float2* restrict c) {
  __local uint4 tile_a[2][VECTORS], tile_b[2][VECTORS];
  const int item = get_local_id(0), warp = item / 32, lane = item % 32;
  // Bands of SWIZZLE rows of tiles; the last band may have fewer.
  const int tiles_m = m / SIDE, tiles_n = n / SIDE, index = get_group_id(0);
  const int band_0 = index / (SWIZZLE * tiles_n) * SWIZZLE, in_band = index % (SWIZZLE * tiles_n);
  const int band = tiles_m - band_0 < SWIZZLE ? tiles_m - band_0 : SWIZZLE;
  const int row_0 = (band_0 + in_band % band) * SIDE, column_0 = in_band / band * SIDE;
  a_h += row_0 * (k / 8);
  b_h += column_0 * (k / 8);

  // The addresses in local memory of the rows that this work-item gives to ldmatrix.
  const uint at_a = (uint)(ulong)(__local void*)tile_a, at_b = (uint)(ulong)(__local void*)tile_b;
  const int row_w = warp / 2 * 32, column_w = warp % 2 * 64;  // where the sub-group's part begins
  const uint a_rows = at_a + (lane / 8 % 2 * SIDE + row_w + lane / 16 * 8 + lane % 8) * 16;
  const uint b_rows = at_b + (lane / 16 * SIDE + column_w + lane % 16) * 16;

  float sum[4][4][4];  // of 16 columns each, of 8 rows each: what a work-item has of such a block
  #pragma unroll
  for (int i = 0; i < 64; i++) sum[i / 16][i / 4 % 4][i % 4] = 0.0f;

  fetch(at_a, at_b, a_h, b_h);
  int now = 0;
  for (int depth = 0; depth < k; depth += TILE_K) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    a_h += VECTORS;
    b_h += VECTORS;
    if (depth + TILE_K < k) fetch(at_a + (1 - now) * VECTORS * 16, at_b + (1 - now) * VECTORS * 16, a_h, b_h);

    #pragma unroll
    for (int core = 0; core < CORES; core += 2) {
      const uint at = (now * VECTORS + core * SIDE) * 16;
      uint a_p[2][4];
      #pragma unroll
      for (int i = 0; i < 2; i++) read(a_rows + at + i * 16 * 16, a_p[i]);
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        uint b_p[4];
        read(b_rows + at + j * 16 * 16, b_p);
        #pragma unroll
        for (int i = 0; i < 4; i++) multiply_add(sum[j][i], b_p, a_p[i / 2] + i % 2 * 2);
      }
    }
    now = 1 - now;
  }

  // Of each block, a work-item has two neighbours of a column, and two of the column eight further on.
  #pragma unroll
  for (int j = 0; j < 4; j++)
    #pragma unroll
    for (int i = 0; i < 4; i++)
      #pragma unroll
      for (int eight = 0; eight < 2; eight++) {
        const int column = column_0 + column_w + j * 16 + eight * 8 + lane / 4;
        const int row = row_0 + row_w + i * 8 + lane % 4 * 2;
        float2 two;
        two.x = sum[j][i][eight * 2], two.y = sum[j][i][eight * 2 + 1];
        c[(column * m + row) / 2] = two;
      }
}
