// Rung 20, the guard: any input is multiplied with float32's accuracy; the device itself decides how.
//   a[p*m + i]       m x k        a_s[panel][p/64]: a tile of 128 rows of A
//   b[j*k + p]       k x n        b_s[panel][p/64]: a tile of 128 columns of B
//   c[j*m + i]       m x n        fp32
//   tile: high[p/8 % 8][i % 128][p % 8], low[...] in fp16; scale in fp32; TILE_BYTES in all
//   unsafe           1 if some element cannot be split, 0 if not
// New: pack looks at each element while it has it in registers. Two parts cannot hold an element that is
//   Inf, NaN, or 2^78 and more. Nor is the bound proven for one that is too small beside its tile's largest:
//   other than zero, but less than 2/k times the scale. Then pack sets a flag in the device's memory.
//   All kernels are launched at once, and the host waits for none of them:
//
//     start      unsafe = 0
//     pack       A and B; unsafe = 1 if there is such an element
//     multiply   returns at once if unsafe is 1
//     fallback   returns at once if unsafe is 0; else it multiplies A and B themselves, without tensor cores
//
// Why: a library does not know its users' data. Whole numbers, images and most uniform data are safe. Data that
//   spread over many orders of magnitude are not, nor are normal data of a million elements: one of them is
//   too close to zero.
// Cost: a comparison for each element, two more launches, and much time where the fallback is needed. clgemm's
//   own kernels keep a list of the elements instead, and add their products apart.
// Error: gamma(k), as in rungs 1 to 16, for all inputs, as long as no sum leaves float32's range. NaN and Inf
//   come out as in rungs 1 to 16. For safe inputs the error is rung 19's: 144 + k/2 + k/64, in units of 2^-24.
// Work-group: 288; 256 for pack and fallback. Local memory: STAGES*3*TILE_BYTES and 16*STAGES bytes.
// Limits: m a multiple of 256, n of 128, k of 64; k at least 512; STAGES 1 or 2.
// Runs on: NVIDIA's GPUs of compute capability 9.0, such as H100 and H200, through NVIDIA's OpenCL.
// After: the sources of rung 19; fallback combines rungs 6, 7 and 12.
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
#define PART_BYTES (2 * SIDE * TILE_K)      // of the high parts, or of the low parts
#define TILE_BYTES (2 * PART_BYTES + 128)  // both, and the scale
#define STAGE_BYTES (3 * TILE_BYTES)       // two tiles of A and one of B
#define TOP 14                             // the largest element over its scale is at least 2^TOP
#define LEAST_SCALE -63                    // scales are 2^-63 to 2^63: the product of two is a normal number
#define LOADS (SIDE * CORES / ITEMS)       // groups of eight that a work-item packs
// The row and the group along k of a work-item's groups. Neighbours read neighbouring elements: along the
// rows of A, and along k of B.
#define ROW_OF(group) (row_step == 1 ? (group) % SIDE : (group) / CORES)
#define CORE_OF(group) (row_step == 1 ? (group) / SIDE : (group) % CORES)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)                   // a macro's value, for assembly

#define TOO_LARGE ((uint)(127 + TOP + 1 - LEAST_SCALE) << 23)  // the bits of 2^78

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void start(__global uint* unsafe) { *unsafe = 0; }

// Round two floats to half precision. The first is in the lower half of the result.
static inline uint halves(const float first, const float second) {
  uint both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

// Read two halves as floats.
static inline float2 floats(const uint both) {
  float2 two;
  asm("{.reg .b16 first, second; mov.b32 {first, second}, %2; cvt.f32.f16 %0, first; cvt.f32.f16 %1, second;}"
      : "=f"(two.x), "=f"(two.y) : "r"(both));
  return two;
}

// Return the largest of a sub-group's numbers.
static inline uint largest_of(const uint x) {
  uint largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(x));
  return largest;
}

// Return the exponent of a tile's scale from the bits of its largest element.
static inline int scale_of(const uint largest) {
  const int exponent = (int)(largest >> 23) - 127 - TOP;
  return exponent < LEAST_SCALE ? LEAST_SCALE : exponent > -LEAST_SCALE ? -LEAST_SCALE : exponent;
}
static inline float power(const int exponent) { return as_float((uint)(127 + exponent) << 23); }

// Split one tile of 128 rows of A, or of B's transpose. Element (row, p) is from[row*row_step + p*k_step].
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void pack(const int k, const int row_step, const int k_step, __global const float* restrict from,
          __global uchar* restrict to, __global uint* unsafe) {
  __local uint largest;
  const int item = get_local_id(0);
  from += get_group_id(0) * SIDE * row_step + get_group_id(1) * TILE_K * k_step;
  to += (ulong)(get_group_id(0) * (k / TILE_K) + get_group_id(1)) * TILE_BYTES;
  if (item == 0) largest = 0;
  barrier(CLK_LOCAL_MEM_FENCE);

  float x[LOADS][8];
  uint size = 0;  // the bits of the largest; those of positive numbers are ordered as the numbers are
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int row = ROW_OF(load * ITEMS + item), core = CORE_OF(load * ITEMS + item);
    #pragma unroll
    for (int p = 0; p < 8; p++) {
      x[load][p] = from[row * row_step + (core * 8 + p) * k_step];
      size = max(size, as_uint(x[load][p]) & 0x7fffffff);
    }
  }
  size = largest_of(size);
  if (item % 32 == 0) atomic_max(&largest, size);
  barrier(CLK_LOCAL_MEM_FENCE);

  const int scale = scale_of(largest);
  const float up = power(-scale);
  // The bits of the smallest power of two over the scale that is at least 2/k. With - 1, zero is not too small.
  const uint too_small = as_uint(power(scale + 1 - (31 - (int)clz((uint)k))));
  bool safe = size < TOO_LARGE;
  if (item == 0) *(__global float*)(to + 2 * PART_BYTES) = power(scale);
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int row = ROW_OF(load * ITEMS + item), core = CORE_OF(load * ITEMS + item);
    uint high[4], low[4];
    #pragma unroll
    for (int p = 0; p < 4; p++) {
      const float first = x[load][2 * p] * up, second = x[load][2 * p + 1] * up;
      safe = safe && (as_uint(x[load][2 * p]) & 0x7fffffff) - 1 >= too_small - 1;
      safe = safe && (as_uint(x[load][2 * p + 1]) & 0x7fffffff) - 1 >= too_small - 1;
      high[p] = halves(first, second);
      low[p] = halves(first - floats(high[p]).x, second - floats(high[p]).y);
    }
    __global uint4* vector = (__global uint4*)to + core * SIDE + row;
    vector[0] = (uint4)(high[0], high[1], high[2], high[3]);
    vector[PART_BYTES / 16] = (uint4)(low[0], low[1], low[2], low[3]);
  }
  if (!safe) *unsafe = 1;
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

// The instruction for two of the eight groups along k, 4096 bytes after the `pair` before. LOW leads from the
// high parts to the low ones. %0 to %63 are the sums, and %64 and %65 the descriptions of B and A.
#define LOW 1024  // PART_BYTES / 16
#define WGMMA(pair, part_b, part_a, add)                                                             \
  "add.s64 b, %64, " TEXT(pair * 256 + part_b) "; add.s64 a, %65, " TEXT(pair * 256 + part_a) ";\n"  \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "                                             \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"      \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"     \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, b, a, " add ", 1, 1, 0, 0;\n"
#define ALL_OF_K(part_b, part_a, first)                                                              \
  WGMMA(0, part_b, part_a, first) WGMMA(1, part_b, part_a, "yes")                                    \
  WGMMA(2, part_b, part_a, "yes") WGMMA(3, part_b, part_a, "yes")
#define EIGHT(i)                                                                                     \
  "=f"(sum[i]), "=f"(sum[i + 1]), "=f"(sum[i + 2]), "=f"(sum[i + 3]),                                \
  "=f"(sum[i + 4]), "=f"(sum[i + 5]), "=f"(sum[i + 6]), "=f"(sum[i + 7])

// Multiply 64 columns of B's tile by 128 rows of A's. The very first instruction does not add. A warp group
// begins when the other one has arrived at its barrier `mine`, and then arrives at the barrier `others`.
static inline void multiply_parts(float* sum, const ulong tile_b, const ulong tile_a, const uint mine,
                                  const uint others) {
  asm volatile("{.reg .b64 a, b; .reg .pred no, yes;\n"
               "setp.ne.b64 no, %64, %64; setp.eq.b64 yes, %64, %64;\n"
               "bar.sync %66, 256;\n"
               "wgmma.fence.sync.aligned;\n"
               ALL_OF_K(0, LOW, "no") ALL_OF_K(LOW, 0, "yes") ALL_OF_K(0, 0, "yes")
               "wgmma.commit_group.sync.aligned;\n"
               "bar.arrive %67, 256;\n"
               "wgmma.wait_group.sync.aligned 0;}\n"
               : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
               : "l"(tile_b), "l"(tile_a), "r"(mine), "r"(others) : "memory");
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
void multiply(const int m, const int n, const int k, __global const uchar* restrict a_s,
              __global const uchar* restrict b_s, __global float2* restrict c,
              __global const uint* unsafe) {
  __local uchar tiles[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong full[STAGES], empty[STAGES];
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma
  if (*unsafe) return;
  const int item = get_local_id(0), warp = item / 32, lane = item % 32;
  const uint at_tiles = (uint)(ulong)(__local void*)tiles;
  const uint at_full = (uint)(ulong)(__local void*)full, at_empty = (uint)(ulong)(__local void*)empty;
  const int tiles_of_c = m / (2 * SIDE) * (n / SIDE);
  const long panel_bytes = (long)(k / TILE_K) * TILE_BYTES;
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
      __global const uchar* from_a = a_s + first.x / SIDE * panel_bytes;
      __global const uchar* from_b = b_s + first.y / SIDE * panel_bytes;
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

  const uint group = warp / 4;
  if (group == 1) asm volatile("bar.arrive 1, 256;" ::: "memory");  // the first warp group begins
  for (int index = get_group_id(0); index < tiles_of_c; index += get_num_groups(0)) {
    const int2 first = place(index, m, n);
    float total[2][64];
    #pragma unroll
    for (int i = 0; i < 128; i++) total[i / 64][i % 64] = 0.0f;
    #pragma unroll 1
    for (int depth = 0; depth < k; depth += TILE_K) {
      const int at = turn.stage * STAGE_BYTES;
      const ulong tile_b = described(at_tiles + at + 2 * TILE_BYTES + group * 64 * 16);
      wait(at_full + turn.stage * 8, turn.round);
      const float scale_b = *(__local const float*)(tiles + at + 2 * TILE_BYTES + 2 * PART_BYTES);
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        float sum[64];
        multiply_parts(sum, tile_b, described(at_tiles + at + h * TILE_BYTES), 1 + group, 2 - group);
        const float scale = scale_b * *(__local const float*)(tiles + at + h * TILE_BYTES + 2 * PART_BYTES);
        #pragma unroll
        for (int i = 0; i < 64; i++) total[h][i] = fma(sum[i], scale, total[h][i]);
      }
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
        two.x = total[h][i], two.y = total[h][i + 1];
        c[((column + i / 2 % 2 * 8) * m + row + h * SIDE + i / 4 * 8) / 2] = two;
      }
  }
}

// C = A*B in plain OpenCL C: tiles of 128 x 128 x 8 in local memory, blocks of 8 x 8 in registers.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void fallback(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b, __global float* restrict c, __global const uint* unsafe) {
  __local float4 tile_a[8][SIDE / 4];
  __local float tile_b[8][SIDE];
  if (!*unsafe) return;
  const int item = get_local_id(0), item_m = item % 16, item_n = item / 16;
  const int row_0 = get_group_id(0) * SIDE, column_0 = get_group_id(1) * SIDE;
  float4 sum[8][2];  // four rows, and four rows 64 further on; the columns likewise
  #pragma unroll
  for (int j = 0; j < 8; j++) sum[j][0] = sum[j][1] = (float4)(0.0f);
  // A work-item loads four rows of A, and four steps along k of B.
  a += item / 32 * m + row_0 + item % 32 * 4;
  b += (column_0 + item / 2) * k + item % 2 * 4;
  for (int depth = 0; depth < k; depth += 8) {
    const float4 next_a = *(__global const float4*)(a + depth * m);
    const float4 next_b = *(__global const float4*)(b + depth);
    barrier(CLK_LOCAL_MEM_FENCE);  // all work-items have read the tiles before
    tile_a[item / 32][item % 32] = next_a;
    tile_b[item % 2 * 4][item / 2] = next_b.x, tile_b[item % 2 * 4 + 1][item / 2] = next_b.y;
    tile_b[item % 2 * 4 + 2][item / 2] = next_b.z, tile_b[item % 2 * 4 + 3][item / 2] = next_b.w;
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int p = 0; p < 8; p++) {
      const float4 a_0 = tile_a[p][item_m], a_1 = tile_a[p][16 + item_m];
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        const float b_j = tile_b[p][j / 4 * 64 + item_n * 4 + j % 4];
        sum[j][0] += a_0 * b_j;
        sum[j][1] += a_1 * b_j;
      }
    }
  }
  #pragma unroll
  for (int j = 0; j < 8; j++)
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int column = column_0 + j / 4 * 64 + item_n * 4 + j % 4;
      *(__global float4*)(c + column * m + row_0 + i * 64 + item_m * 4) = sum[j][i];
    }
}
