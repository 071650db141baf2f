// Rung 18, warp groups: tiles come by the copy engine, and wgmma multiplies them in local memory.
//   a[p*m + i]       m x k        a_h[panel][p/8][i % 128][p % 8]    fp16; panel = i/128
//   b[j*k + p]       k x n        b_h[panel][p/8][j % 128][p % 8]    fp16; panel = j/128
//   c[j*m + i]       m x n        fp32
// New: four neighbouring sub-groups, a warp group, multiply together. An instruction takes 64 columns of B
//   and 128 rows of A, 16 of k deep, straight from local memory. Two warp groups share a tile of 256 rows x
//   128 columns of C. Each has 64 columns in registers. A ninth sub-group only feeds them. One of its
//   work-items asks the copy engine for tiles, up to STAGES ahead. Barriers in local memory tell when the
//   bytes of a stage have come (full), and when all eight sub-groups have read it (empty):
//
//     copies      stage 0 | stage 1 | stage 2 | wait until 0 is empty, stage 0 | ...
//     products    wait until 0 is full | stage 0 | stage 1 | ...
//
// How: there are as many work-groups as compute units. Each takes one tile of C after another, and the copies
//   for the next tile come while one is stored.
// Why: in rung 17 the sub-groups spend most instructions on addresses, copies and ldmatrix. Here no operand
//   goes through registers, and half of rung 17's reads of local memory disappear.
// Cost: the tiles take most of a compute unit's local memory, so that one work-group runs there.
// Error: rung 17's: at most (2^-10 + 2^-22 + k*2^-23) |A| |B|, for elements that are zero, or at least 2^-14
//   and less than 65520.
// Work-group: 288. Local memory: STAGES*48 KiB and 16*STAGES bytes. Pack: work-group 256, tiles of 128 x 64.
// Limits: m a multiple of 256, n of 128, k of 64; STAGES 1 to 4.
// Runs on: NVIDIA's GPUs of compute capability 9.0, such as H100 and H200, through NVIDIA's OpenCL.
// After: NVIDIA, "Parallel thread execution ISA", wgmma, mbarrier and cp.async.bulk; CUTLASS's kernels with
//   warp specialisation.
#ifndef STAGES
#error "STAGES: tiles of A and B in local memory"
#endif
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles in a band"
#endif

#define SIDE 128                           // rows of A, or columns of B, of a tile in memory
#define TILE_K 64                          // its depth
#define CORES (TILE_K / 8)                 // groups of eight elements along k
#define ITEMS 256                          // work-items that multiply; and those that pack
#define FEEDERS 32
#define TILE_BYTES (2 * SIDE * TILE_K)
#define STAGE_BYTES (3 * TILE_BYTES)       // two tiles of A and one of B
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)                   // a macro's value, for assembly

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
  to += (get_group_id(0) * (k / TILE_K) + get_group_id(1)) * SIDE * CORES;
  #pragma unroll
  for (int load = 0; load < SIDE * CORES / ITEMS; load++) {
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

// Barriers in local memory, by their address. A phase ends when all arrivals and all bytes have come.
static inline void initialise(const uint barrier, const uint arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
static inline void make_visible(void) {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static inline void expect(const uint barrier, const uint bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
static inline void arrive(const uint barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
static inline void wait(const uint barrier, const uint parity) {
  uint done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}

// Let the copy engine bring a tile to local memory. The barrier must expect its bytes.
static inline void copy(const uint to, __global const uchar* from, const uint barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"((uint)TILE_BYTES), "r"(barrier) : "memory");
}

// What wgmma needs to know about a tile in local memory: the address, and the distances between blocks of
// eight rows along the rows (128 bytes) and along k (2048 bytes). All count in units of 16 bytes.
static inline ulong described(const uint address) { return (ulong)8 << 32 | 128 << 16 | address / 16; }

// The instruction for two of the eight groups along k, 4096 bytes after the `pair` before. %0 to %63 are the
// sums, and %64 and %65 the descriptions of B and A.
#define WGMMA(pair)                                                                                  \
  "add.s64 b, %64, " TEXT(pair * 256) "; add.s64 a, %65, " TEXT(pair * 256) ";\n"                    \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "                                             \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"      \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"     \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, b, a, yes, 1, 1, 0, 0;\n"
#define EIGHT(i)                                                                                     \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]),                                \
  "+f"(sum[i + 4]), "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])

// Add the product of 64 columns of B's tile and 128 rows of A's. One piece of assembly, because the compiler
// must not touch the sums before all four instructions are done.
static inline void multiply_add(float* sum, const ulong tile_b, const ulong tile_a) {
  asm volatile("{.reg .b64 a, b; .reg .pred yes; setp.eq.b64 yes, %64, %64;\n"
               "wgmma.fence.sync.aligned;\n"
               WGMMA(0) WGMMA(1) WGMMA(2) WGMMA(3)
               "wgmma.commit_group.sync.aligned;\n"
               "wgmma.wait_group.sync.aligned 0;}\n"
               : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
               : "l"(tile_b), "l"(tile_a) : "memory");
}

// The stage that is in use, and the parity of its uses.
typedef struct {
  int stage;
  uint round;
} Turn;
static inline void next(Turn* turn) {
  if (++turn->stage == STAGES) turn->stage = 0, turn->round ^= 1;
}

// The first row and column of tile `index` of C. Bands of SWIZZLE rows of tiles; the last may have fewer.
static inline int2 place(const int index, const int m, const int n) {
  const int tiles_m = m / (2 * SIDE), tiles_n = n / SIDE;
  const int band_0 = index / (SWIZZLE * tiles_n) * SWIZZLE, in_band = index % (SWIZZLE * tiles_n);
  const int band = tiles_m - band_0 < SWIZZLE ? tiles_m - band_0 : SWIZZLE;
  return (int2)((band_0 + in_band % band) * 2 * SIDE, in_band / band * SIDE);
}

__kernel __attribute__((reqd_work_group_size(ITEMS + FEEDERS, 1, 1)))
void multiply(const int m, const int n, const int k, __global const uchar* restrict a_h,
              __global const uchar* restrict b_h, __global float2* restrict c) {
  __local uchar tiles[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong full[STAGES], empty[STAGES];
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma
  const int item = get_local_id(0), warp = item / 32, lane = item % 32;
  const uint at_tiles = (uint)(ulong)(__local void*)tiles;
  const uint at_full = (uint)(ulong)(__local void*)full, at_empty = (uint)(ulong)(__local void*)empty;
  const int tiles_of_c = m / (2 * SIDE) * (n / SIDE);
  const int panel_bytes = k / TILE_K * TILE_BYTES;
  if (item == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      initialise(at_full + stage * 8, 1);
      initialise(at_empty + stage * 8, ITEMS / 32);
    }
    make_visible();
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  Turn turn = {0, 0};
  if (item >= ITEMS) {
    if (item > ITEMS) return;
    for (int index = get_group_id(0); index < tiles_of_c; index += get_num_groups(0)) {
      const int2 first = place(index, m, n);
      __global const uchar* from_a = a_h + (long)(first.x / SIDE) * panel_bytes;
      __global const uchar* from_b = b_h + (long)(first.y / SIDE) * panel_bytes;
      for (int depth = 0; depth < k; depth += TILE_K) {
        const uint to = at_tiles + turn.stage * STAGE_BYTES, barrier_of_stage = at_full + turn.stage * 8;
        wait(at_empty + turn.stage * 8, turn.round ^ 1);
        expect(barrier_of_stage, STAGE_BYTES);
        copy(to, from_a, barrier_of_stage);
        copy(to + TILE_BYTES, from_a + panel_bytes, barrier_of_stage);
        copy(to + 2 * TILE_BYTES, from_b, barrier_of_stage);
        from_a += TILE_BYTES;
        from_b += TILE_BYTES;
        next(&turn);
      }
    }
    return;
  }

  for (int index = get_group_id(0); index < tiles_of_c; index += get_num_groups(0)) {
    const int2 first = place(index, m, n);
    float sum[2][64];
    #pragma unroll
    for (int i = 0; i < 128; i++) sum[i / 64][i % 64] = 0.0f;
    #pragma unroll 1
    for (int depth = 0; depth < k; depth += TILE_K) {
      const uint at = at_tiles + turn.stage * STAGE_BYTES;
      const ulong tile_b = described(at + 2 * TILE_BYTES + warp / 4 * 64 * 16);
      wait(at_full + turn.stage * 8, turn.round);
      #pragma unroll
      for (int h = 0; h < 2; h++) multiply_add(sum[h], tile_b, described(at + h * TILE_BYTES));
      if (lane == 0) arrive(at_empty + turn.stage * 8);
      next(&turn);
    }

    // Of each 8 rows and 16 columns, a work-item has two neighbours of a column, and two of the column
    // eight further on.
    const int row = first.x + lane % 4 * 2, column = first.y + warp * 16 + lane / 4;
    #pragma unroll
    for (int h = 0; h < 2; h++)
      #pragma unroll
      for (int i = 0; i < 64; i += 2) {
        float2 two;
        two.x = sum[h][i], two.y = sum[h][i + 1];
        c[((column + i / 2 % 2 * 8) * m + row + h * SIDE + i / 4 * 8) / 2] = two;
      }
  }
}
