// A work-group of three warp groups multiplies the tiles of tensor_core/tile.cl with wgmma.
// For each tile of k, of a row and a column with scales r and s,
//     sum = high_a*low_b + low_a*high_b + high_a*high_b     wgmma, from zero
//     c  += sum * (r*s)                                     in registers
// With INT8 the first two products are products of bytes, twice as fast: sum = unit*(their integer sum) + high_a*high_b.
//
// Two warp groups compute 64 x TILE_N of C each (multiply_tiles). The third only feeds them (feed_tiles): one of its
// work-items has the copy engine bring tiles to local memory, up to STAGES ahead. Work-groups are persistent: each takes
// one tile of C after another, and the operands of the next arrive while one is stored.
//
// Split-k: the first `whole` tiles of C are computed at once, the others in `slices` slices of k each, so that no compute
// unit is idle in the last round. The last work-group to write a slice of a tile adds them all up. None waits for another.
//
// `tf32` tells how operands are split. Both methods share all code but the innermost loop: compiling it twice takes twice as
// long.
//
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions.
#ifndef TILE_N
#error "TILE_N: columns of C per tile, 128 or 256"
#endif
#ifndef STAGES
#error "STAGES: tiles of A and B in local memory"
#endif
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles that work-groups visit together"
#endif
#define TILE_M 128
#define PANELS (TILE_N / TILE_ROWS)  // panels of B per tile of C
#define STAGE_BYTES ((1 + PANELS) * TILE_BYTES)
#define BARRIERS_BYTES 128
#define ITEMS 384

// Barriers in local memory: FULL counts the bytes of a stage that arrive, EMPTY the eight warps that have read it.
#define FULL(stage) (base + (stage) * 8)
#define EMPTY(stage) (base + 64 + (stage) * 8)

// The text of the instructions for a product of tiles, 64 x 128 of C. %0 to %63 are the sums. %64 and %65 are the
// descriptors of the high parts of a and of b. Their addresses count in units of 16 bytes. LOW leads from the high part
// of a tile to the low part, CORES to the next two cores along k.
#define LOW 1024    // PART_BYTES/16
#define CORES 256   // 2*TILE_ROWS*16/16
#define DISTANCE 8  // from one core matrix to the next along the rows, 128/16
#define WGMMA(shape)                                                                             \
  "wgmma.mma_async.sync.aligned." shape                                                          \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
#define SHAPE_OF_HALVES "m64n128k16.f32.f16.f16 "
#define NOT_TRANSPOSED ", 0, 0"
#define SHAPE_OF_TF32 "m64n128k8.f32.tf32.tf32 "
#define TIMES(shape, plain, cores, part_a, part_b, add)                                         \
  "add.s64 a, %64, " TEXT(cores * CORES + part_a) ";\n"                                         \
  "add.s64 b, %65, " TEXT(cores * CORES + part_b) ";\n"                                         \
  WGMMA(shape) "a, b, " add ", 1, 1" plain ";\n"
#define ALL_TIMES(shape, plain, part_a, part_b, first_adds)                                     \
  TIMES(shape, plain, 0, part_a, part_b, first_adds) TIMES(shape, plain, 1, part_a, part_b, "yes") \
  TIMES(shape, plain, 2, part_a, part_b, "yes") TIMES(shape, plain, 3, part_a, part_b, "yes")
#define EIGHT(i)                                                                    \
  "=f"(sum[i]), "=f"(sum[i + 1]), "=f"(sum[i + 2]), "=f"(sum[i + 3]),               \
  "=f"(sum[i + 4]), "=f"(sum[i + 5]), "=f"(sum[i + 6]), "=f"(sum[i + 7])
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
// sum = a*b. The 12 instructions are in one piece, since the compiler must not touch the sums before all are done. The
// small products come first, so that less of them is lost; the first of all does not add. The two warp groups take turns
// at the barriers `mine` and `others`: the tensor cores work for one while the other adds up.
#define MULTIPLY(shape, plain)                                                                  \
  asm volatile("{.reg .b64 a, b; .reg .pred no, yes;\n"                                         \
               "setp.ne.b32 no, %66, %66; setp.eq.b32 yes, %66, %66;\n"                         \
               "bar.sync %66, 256;\n"                                                           \
               "wgmma.fence.sync.aligned;\n"                                                    \
               ALL_TIMES(shape, plain, 0, LOW, "no") ALL_TIMES(shape, plain, LOW, 0, "yes")     \
               ALL_TIMES(shape, plain, 0, 0, "yes")                                             \
               "wgmma.commit_group.sync.aligned;\n"                                             \
               "bar.arrive %67, 256;\n"                                                         \
               "wgmma.wait_group.sync.aligned 0;}\n"                                            \
               : RESULTS : "l"(tile_a), "l"(tile_b), "r"(mine), "r"(others) : "memory")
static inline void multiply(float* sum, const bool tf32, const ulong tile_a, const ulong tile_b, const uint mine,
                            const uint others) {
  if (tf32)
    MULTIPLY(SHAPE_OF_TF32, "");
  else
    MULTIPLY(SHAPE_OF_HALVES, NOT_TRANSPOSED);
}

#if INT8
// The same with bytes for the small products, which take one turn; the large product takes another. The integer sums
// begin as the bits of 1.5 * 2^23, whose last bit counts 1, and stay below 2^22: read as float32, they end as 1.5 * 2^23
// + sum. %66 is the unit of the sums, %67 the unit times -1.5 * 2^23, exactly.
#define HIGH_BYTES 1024  // PART_BYTES/16
#define LOW_BYTES 1536   // LOW_BYTES_AT/16
#define EACH(F)                                                                         \
  F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) \
  F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29)   \
  F(30) F(31) F(32) F(33) F(34) F(35) F(36) F(37) F(38) F(39) F(40) F(41) F(42) F(43)   \
  F(44) F(45) F(46) F(47) F(48) F(49) F(50) F(51) F(52) F(53) F(54) F(55) F(56) F(57)   \
  F(58) F(59) F(60) F(61) F(62) F(63)
#define BEGIN(i) "mov.b32 t" #i ", 0x4B400000;\n"
#define END(i) "fma.rn.f32 %" #i ", t" #i ", %66, %67;\n"
#define TIMES_BYTES(cores, part_a, part_b)                                                              \
  "add.s64 a, %64, " TEXT(cores * CORES + part_a) ";\n"                                                 \
  "add.s64 b, %65, " TEXT(cores * CORES + part_b) ";\n"                                                 \
  "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "                                                  \
  "{t0,t1,t2,t3,t4,t5,t6,t7,t8,t9,t10,t11,t12,t13,t14,t15,t16,t17,t18,t19,t20,t21,t22,t23,t24,"         \
  "t25,t26,t27,t28,t29,t30,t31,t32,t33,t34,t35,t36,t37,t38,t39,t40,t41,t42,t43,t44,t45,t46,t47,"        \
  "t48,t49,t50,t51,t52,t53,t54,t55,t56,t57,t58,t59,t60,t61,t62,t63}, a, b, yes;\n"
static inline void multiply_bytes(float* sum, const ulong tile_a, const ulong tile_b, const float unit, const uint mine,
                                  const uint others) {
  asm volatile("{.reg .b64 a, b; .reg .pred yes; .reg .b32 t<64>;\n"
               "setp.eq.b64 yes, %64, %64;\n"
               EACH(BEGIN)
               "bar.sync %68, 256;\n"
               "wgmma.fence.sync.aligned;\n"
               TIMES_BYTES(0, HIGH_BYTES, LOW_BYTES) TIMES_BYTES(1, HIGH_BYTES, LOW_BYTES)
               TIMES_BYTES(0, LOW_BYTES, HIGH_BYTES) TIMES_BYTES(1, LOW_BYTES, HIGH_BYTES)
               "wgmma.commit_group.sync.aligned;\n"
               "bar.arrive %69, 256;\n"
               "wgmma.wait_group.sync.aligned 0;\n"
               EACH(END)
               "bar.sync %68, 256;\n"
               "wgmma.fence.sync.aligned;\n"
               ALL_TIMES(SHAPE_OF_HALVES, NOT_TRANSPOSED, 0, 0, "yes")
               "wgmma.commit_group.sync.aligned;\n"
               "bar.arrive %69, 256;\n"
               "wgmma.wait_group.sync.aligned 0;}\n"
               : RESULTS
               : "l"(tile_a), "l"(tile_b), "f"(unit), "f"(-12582912.0f * unit), "r"(mine), "r"(others) : "memory");
}
#endif

// The panel of A of a tile of C, and its first panel of B.
static inline int panel_of_a(const Product* p, const int matrix, const Place place) {
  return (p->a_stride == 0 ? 0 : matrix) * panels_of(p->m) + place.m;
}

static inline int panel_of_b(const Product* p, const int matrix, const Place place) {
  return (p->b_stride == 0 ? 0 : matrix) * panels_of(p->n) + place.n * PANELS;
}

// How the tiles of C are cut along k.
typedef struct {
  int whole, slices;         // tiles that are not cut; slices of each other tile
  __global float4* partial;  // sums of slices: [tile - whole][slice][vectors of a tile]
  __global uint* counters;   // for each tile that is cut, the slices that are written; 0 before and after
} Cuts;

// What a work-group computes at a time: a tile of C, from depth `first` to `end`.
typedef struct {
  int tile, first, end, slice;
} Part;

static inline int parts_of(const Cuts* cuts, const int tiles) { return cuts->whole + (tiles - cuts->whole) * cuts->slices; }

static inline Part part_of(const Cuts* cuts, const int tiles, const int depths, const int index) {
  Part part = {index, 0, depths, 0};
  if (index >= cuts->whole) {
    const int cut = tiles - cuts->whole, deep = (depths + cuts->slices - 1) / cuts->slices;
    part.tile = cuts->whole + (index - cuts->whole) % cut;
    part.slice = (index - cuts->whole) / cut;
    part.first = part.slice * deep;
    part.end = min(part.first + deep, depths);
  }
  return part;
}

// A barrier for the work-items that multiply.
static inline void multiply_barrier(void) { asm volatile("bar.sync 5, 256;" ::: "memory"); }

// The slices of a part's tile, each of so many vectors.
static inline __global float4* slices_of(const Cuts* cuts, const Part* part, const int vectors) {
  return cuts->partial + (long)(part->tile - cuts->whole) * cuts->slices * vectors;
}

// Whether this work-group is the last to write a slice of the tile. If so, it sees those of the others.
static inline bool comes_last(const Cuts* cuts, const Part* part, __local uint* earlier) {
  multiply_barrier();
  if (get_local_id(0) == 0) {
    __global uint* counter = cuts->counters + (part->tile - cuts->whole);
    *earlier = count_and_see(counter);
    if (*earlier == cuts->slices - 1) *counter = 0;
  }
  multiply_barrier();
  return *earlier == cuts->slices - 1;
}

// Writes the sums of a slice. If it is the tile's last to be written, add up all, in order, and return true.
static inline bool add_slices(float (*total)[64], const Cuts* cuts, const Part* part, __local uint* earlier) {
  const int vectors = 16 * PANELS * 256;
  __global float4* slices = slices_of(cuts, part, vectors) + get_local_id(0);
  __global float4* own = slices + part->slice * vectors;
  #pragma unroll
  for (int h = 0; h < PANELS; h++)
    #pragma unroll
    for (int i = 0; i < 16; i++) {
      const float* v = total[h] + 4 * i;
      own[(h * 16 + i) * 256] = (float4)(v[0], v[1], v[2], v[3]);
    }
  if (!comes_last(cuts, part, earlier)) return false;
  #pragma unroll
  for (int h = 0; h < PANELS; h++) {
    #pragma unroll
    for (int i = 0; i < 64; i++) total[h][i] = 0.0f;
    #pragma unroll 1
    for (int slice = 0; slice < cuts->slices; slice++)
      #pragma unroll
      for (int i = 0; i < 16; i++) {
        const float4 v = slices[slice * vectors + (h * 16 + i) * 256];
        total[h][4 * i] += v.x, total[h][4 * i + 1] += v.y, total[h][4 * i + 2] += v.z, total[h][4 * i + 3] += v.w;
      }
  }
  return true;
}

static inline __attribute__((always_inline)) void feed_tiles(const Product* p, const bool tf32, const Cuts* cuts,
                                                             const uint base) {
  const int depths = depths_of(p->k, tf32), panels_b = panels_of(p->n);
  const int tiles_m = (p->m + TILE_M - 1) / TILE_M, tiles_n = (p->n + TILE_N - 1) / TILE_N;
  const int of_matrix = tiles_of_rows(tiles_m, tiles_n, TILE_M, TILE_N), tiles = p->matrices * of_matrix;
  const long panel_bytes = (long)depths * TILE_BYTES;
  const uint stages = base + BARRIERS_BYTES;
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  for (int index = get_group_id(0); index < parts_of(cuts, tiles); index += get_num_groups(0)) {
    const Part part = part_of(cuts, tiles, depths, index);
    const int matrix = part.tile / of_matrix;
    const Place place = swizzled(part.tile % of_matrix, tiles_m, tiles_n, SWIZZLE, TILE_M, TILE_N);
    const long skipped = (long)part.first * TILE_BYTES;
    __global const uchar* from_a = p->packed_a + panel_of_a(p, matrix, place) * panel_bytes + skipped;
    __global const uchar* from_b = p->packed_b + panel_of_b(p, matrix, place) * panel_bytes + skipped;
    // If the second panel of the last tile is missing, the first is read again; its result is not stored.
    const long beside = place.n * PANELS + 1 < panels_b ? panel_bytes : 0;
    #pragma unroll 1
    for (int depth = part.first; depth < part.end; depth++) {
      const uint to = stages + stage * STAGE_BYTES;
      wait_for(EMPTY(stage), round ^ 1);
      expect(FULL(stage), STAGE_BYTES);
      fetch(to, from_a, TILE_BYTES, FULL(stage));
      fetch(to + TILE_BYTES, from_b, TILE_BYTES, FULL(stage));
      if (PANELS == 2) fetch(to + 2 * TILE_BYTES, from_b + beside, TILE_BYTES, FULL(stage));
      from_a += TILE_BYTES;
      from_b += TILE_BYTES;
      next_stage(&stage, &round, STAGES);
    }
  }
}

// Add the products of the next `depths` tiles to the totals. `tf32` is a constant, so that this loop has no branch.
static inline __attribute__((always_inline)) void add_depths(float (*total)[64], const bool tf32, const int depths, int* stage,
                                                             uint* round, __local uchar* memory) {
  const uint base = (uint)(ulong)memory, warp = get_local_id(0) / 32, group = warp / 4;
  const int my_row = warp * 16 + own_row(), my_column = own_column();
  // A descriptor without its address: the distances of core matrices along the rows and along k.
  const ulong shape = (ulong)DISTANCE << 32 | TILE_ROWS * 16 / 16 << 16;
  #pragma unroll 1
  for (int depth = 0; depth < depths; depth++) {
    const uint at = BARRIERS_BYTES + *stage * STAGE_BYTES;
    // Addresses are the same for the warp. Told so, the compiler has descriptors in uniform registers before they are
    // needed. Otherwise it moves each there first, and the tensor cores, which take no instruction early, wait for that.
    const ulong tile_a = shape | largest_of_warp((base + at + group * 64 * 16) / 16);
    wait_for(FULL(*stage), *round);
    #pragma unroll
    for (int h = 0; h < PANELS; h++) {
      const uint at_b = at + (1 + h) * TILE_BYTES;
      const ulong tile_b = shape | largest_of_warp((base + at_b) / 16);
      float sum[64];
#if INT8
      const float steps = *(__local const float*)(memory + at + STEP_AT) *
                          *(__local const float*)(memory + at_b + STEP_AT);
      const float unit = as_float(as_uint(steps / FINER) & ~3);  // three times it is a number, too
      multiply_bytes(sum, tile_a, tile_b, unit, 1 + group, 2 - group);
#else
      multiply(sum, tf32, tile_a, tile_b, 1 + group, 2 - group);
#endif
      const float common = *(__local const float*)(memory + at + COMMON_AT) *
                           *(__local const float*)(memory + at_b + COMMON_AT);
      if (common != 0.0f) {
        #pragma unroll
        for (int i = 0; i < 64; i++) total[h][i] = fma(sum[i], common, total[h][i]);
      } else {
        __local const float* scales_a = (__local const float*)(memory + at + SCALES_AT) + my_row;
        __local const float4* scales_b = (__local const float4*)(memory + at_b + SCALES_AT) + my_column / 4;
        const float scale_0 = scales_a[0], scale_2 = scales_a[2];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          const float4 scale = scales_b[4 * j];
          total[h][8 * j + 0] = fma(sum[8 * j + 0], scale_0 * scale.x, total[h][8 * j + 0]);
          total[h][8 * j + 1] = fma(sum[8 * j + 1], scale_0 * scale.y, total[h][8 * j + 1]);
          total[h][8 * j + 2] = fma(sum[8 * j + 2], scale_2 * scale.x, total[h][8 * j + 2]);
          total[h][8 * j + 3] = fma(sum[8 * j + 3], scale_2 * scale.y, total[h][8 * j + 3]);
          total[h][8 * j + 4] = fma(sum[8 * j + 4], scale_0 * scale.z, total[h][8 * j + 4]);
          total[h][8 * j + 5] = fma(sum[8 * j + 5], scale_0 * scale.w, total[h][8 * j + 5]);
          total[h][8 * j + 6] = fma(sum[8 * j + 6], scale_2 * scale.z, total[h][8 * j + 6]);
          total[h][8 * j + 7] = fma(sum[8 * j + 7], scale_2 * scale.w, total[h][8 * j + 7]);
        }
      }
    }
    if (get_local_id(0) % 32 == 0) arrive(EMPTY(*stage));
    next_stage(stage, round, STAGES);
  }
}

static inline __attribute__((always_inline)) void multiply_tiles(
    const Product* p, const bool tf32, const Cuts* cuts, const float alpha, const float beta, __global float* c,
    const long c_row, const long c_column, const long c_stride, const uint listed, __local uchar* memory,
    __local float* corners, __local uint* earlier) {
  const int depths = depths_of(p->k, tf32), panels_b = panels_of(p->n);
  const int tiles_m = (p->m + TILE_M - 1) / TILE_M, tiles_n = (p->n + TILE_N - 1) / TILE_N;
  const int of_matrix = tiles_of_rows(tiles_m, tiles_n, TILE_M, TILE_N), tiles = p->matrices * of_matrix;
  const long panel_bytes = (long)depths * TILE_BYTES;
  const uint warp = get_local_id(0) / 32;
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  if (warp / 4 == 1) asm volatile("bar.arrive 1, 256;" ::: "memory");  // the first warp group takes the first turn
  for (int index = get_group_id(0); index < parts_of(cuts, tiles); index += get_num_groups(0)) {
    const Part part = part_of(cuts, tiles, depths, index);
    const int matrix = part.tile / of_matrix;
    const Place place = swizzled(part.tile % of_matrix, tiles_m, tiles_n, SWIZZLE, TILE_M, TILE_N);
#if GUARD
    // Look for outliers while tiles arrive.
    const int panel_a = panel_of_a(p, matrix, place), panel_b = panel_of_b(p, matrix, place);
    const int panels = min(PANELS, panels_b - place.n * PANELS);
    uint any = 0;
    if (listed != 0)
      any = panels_with_outliers(directory_of(p->packed_a, panels_of_a(p) * depths) + panel_a * depths,
                      directory_of(p->packed_b, panels_of_b(p) * depths) + panel_b * depths, panels, depths);
#endif
    float total[PANELS][64];
    #pragma unroll
    for (int h = 0; h < PANELS; h++)
      #pragma unroll
      for (int i = 0; i < 64; i++) total[h][i] = 0.0f;

    if (tf32)
      add_depths(total, true, part.end - part.first, &stage, &round, memory);
    else
      add_depths(total, false, part.end - part.first, &stage, &round, memory);

    if (index >= cuts->whole && !add_slices(total, cuts, &part, earlier)) continue;
    const int rows = p->m - place.m * TILE_M - warp * 16, columns = p->n - place.n * TILE_N;
    __global float* c_tile = c + matrix * c_stride + place.m * TILE_M * c_row + place.n * TILE_N * c_column;
    __global float* c_warp = c_tile + warp * 16 * c_row;
    const bool vectors = c_column == 1 && c_row % 4 == 0 && ((ulong)c_tile & 15) == 0 && columns >= TILE_N;
    if (vectors) {
      #pragma unroll
      for (int j = 0; j < TILE_N / 32; j++)
        store_vectors(total[j / 4] + j % 4 * 16, alpha, beta, c_warp + j * 32, c_row, rows);
    } else {
      store_runs(total[0], TILE_N / 32, alpha, beta, c_warp, c_row, c_column, rows, columns, corners + warp * CORNER);
    }
#if GUARD
    if (any != 0) {
      const Tile t = {
          p->packed_a + panel_a * panel_bytes, p->packed_b + panel_b * panel_bytes,
          directory_of(p->packed_a, panels_of_a(p) * depths) + panel_a * depths,
          directory_of(p->packed_b, panels_of_b(p) * depths) + panel_b * depths,
          p->a + matrix * p->a_stride + place.m * TILE_M * p->a_row,
          p->b + matrix * p->b_stride + place.n * TILE_N * p->b_row, c_tile,
          p->a_row, p->a_column, p->b_row, p->b_column, c_row, c_column, p->m - place.m * TILE_M, columns, depths,
          depth_of_tile(tf32), alpha};
      warp_barrier();
      if (any & 1) add_outliers_of_a(&t, warp * 16, 0, TILE_N);
      for (int h = 0; h < panels; h++)
        if (any >> h & 2) add_outliers_of_b(&t, warp * 16, 0, TILE_N, h);
    }
#endif
  }
}
