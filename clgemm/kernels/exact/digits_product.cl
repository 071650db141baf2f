// C = A B from tiles of digits or of float16 (exact/digits.cl), or C = C + A B with `adds`, on the tensor cores of compute capability 9.0.
//   a, b                        packed operands: tiles of 128 rows of A, of 256 columns of B
//   c[i*c_row + j*c_column]     m x n
// The product of two numbers of base 256 is the sum of 256^s times the products of digits i and j with i + j = s. Those of one
// s add up over all of k in 32 bits. Horner's rule, from the highest s down: the sums are shifted by 8 bits, and those of the
// next s are added to them, modulo 2^32. A result of 64 bits gets the sums of s >= 4 so, times 2^32, and those of each lower s
// by themselves: k is short enough that they do not overflow. Only digits that a tile of C needs count: see the directory.
// float16 adds up in float32 and rounds once; slices of k are float32. An instruction adds 16 products to a sum with at least 24 bits: its error is
// at most that of adding them one by one.
//
// Two warp groups compute 64 x 256 of C each. The third has the copy engine bring pairs of digits to local memory, up to
// STAGES ahead. Work-groups are persistent: each takes one tile of C after another.
// Elsewhere than on NVIDIA's GPUs this is written without tensor cores, for tests.
// Work-groups: as many as compute units at most, 384 work-items each. Local: STAGES stages and their barriers.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions; Ootomo, Ozaki and
// Yokota, "DGEMM on integer matrix multiplication unit", 2024.
#ifndef DIGITS_A
#error "DIGITS_A: of each element of A"
#endif
#ifndef DIGITS_B
#error "DIGITS_B: of each element of B"
#endif
#ifndef SIGNS
#error "SIGNS: 1 if the digits of A are signed, and 2 if those of B are"
#endif
#ifndef STAGES
#error "STAGES: pairs of digits in local memory"
#endif
#define DIGITS_C (STORED == 0 || HALVES ? 1 : 1 << (STORED - 1))
#define IS_LONG (DIGITS_C == 8)
#define ITEMS 384
#define MULTIPLIERS 256  // of them
#define SUMS 128         // of each multiplier
#define STAGE_BYTES (BYTES_OF(TILE_M) + BYTES_OF(TILE_N))
#define BARRIERS_BYTES 128

// The sums stay in registers, where there are so many.
#if HALVES
#define SUM float
#else
#define SUM int
#endif
#ifdef __NV_CL_C_VERSION
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define FULL(stage) (base + (stage) * 8)
#define EMPTY(stage) (base + 64 + (stage) * 8)
#else
#define UNROLL
#define NO_UNROLL
#endif

// A tile of C, and what it needs of the packed operands.
typedef struct {
  Place place;
  int matrix, digits_a, digits_b;
  __global const uchar *a, *b;  // its first tiles
} Part;

// The most digits that tiles use: their number is the same for the warp.
static inline int most_used(__global const uint* directory, const int tiles) {
  uint most = 0;
#ifdef __NV_CL_C_VERSION
  for (int i = get_local_id(0) % 32; i < tiles; i += 32) most = max(most, directory[i]);
  asm volatile("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(most));
#else
  for (int i = 0; i < tiles; i++) most = max(most, directory[i]);
#endif
  return most;
}

static inline Part part_of(const int index, const int matrices, const int m, const int n, const int depth, const int swizzle,
                           __global const uchar* a, __global const uchar* b) {
  const int panels_m = (m + TILE_M - 1) / TILE_M, panels_n = (n + TILE_N - 1) / TILE_N;
  const int tiles = tiles_of_rows(panels_m, panels_n, TILE_M, TILE_N);
  Part part;
  part.matrix = index / tiles;
  part.place = swizzled(index % tiles, panels_m, panels_n, swizzle, TILE_M, TILE_N);
  const long first_a = ((long)part.matrix * panels_m + part.place.m) * depth;
  const long first_b = ((long)part.matrix * panels_n + part.place.n) * depth;
  part.a = a + first_a * DIGITS_A * BYTES_OF(TILE_M);
  part.b = b + first_b * DIGITS_B * BYTES_OF(TILE_N);
  part.digits_a = part.digits_b = 1;
  if (DIGITS_A > 1)
    part.digits_a = most_used(directory_of(a, (long)matrices * panels_m * depth, DIGITS_A * BYTES_OF(TILE_M)) + first_a, depth);
  if (DIGITS_B > 1)
    part.digits_b = most_used(directory_of(b, (long)matrices * panels_n * depth, DIGITS_B * BYTES_OF(TILE_N)) + first_b, depth);
  return part;
}

// The pairs of digits i and s - i: i from first_of(s) to last_of(s), for s from top_of down to 0.
static inline int top_of(const Part* part) { return clamp(part->digits_a + part->digits_b - 2, 0, DIGITS_C - 1); }
static inline int first_of(const Part* part, const int s) { return max(0, s - part->digits_b + 1); }
static inline int last_of(const Part* part, const int s) { return min(part->digits_a - 1, s); }

#if HALVES && STORED == 9
#define RESULT_TYPE float
#define SHIFTED(sum, shift) (sum)
static inline float result_of(const float sum, const float old) { return sum + old; }
#elif HALVES
#define RESULT_TYPE ushort
#define SHIFTED(sum, shift) (sum)
static inline ushort result_of(const float sum, const ushort old) {
  union {
    half value;
    ushort bits;
  } result;
  vstore_half_rte(sum, 0, &result.value);
  return result.bits;
}
#else
#define RESULT_TYPE STORED_TYPE
#define SHIFTED(sum, shift) ((LANE_TYPE)(long)(sum) << (shift))
static inline STORED_TYPE result_of(const LANE_TYPE sum, const STORED_TYPE old) {
  return STORED == 0 ? sum != 0 || old != 0 : (STORED_TYPE)(sum + old);
}
#endif

// Store a multiplier's sums, shifted to the left. Bit 2 of the number of a sum adds 2 to the column, bit 0 one, bit 1 two rows,
// and each eight of them are sixteen columns.
static inline void store_sums(const SUM* sum, const int shift, const int adds, __global RESULT_TYPE* c, const long c_row,
                              const long c_column, const int rows, const int columns) {
  const int item = get_local_id(0), slot = item / 32 * 16 + item % 32 / 4, column_0 = item % 4 * 4;
  const bool aligned = c_column == 1 && ((ulong)c | (ulong)c_row * sizeof(RESULT_TYPE)) % (4 * sizeof(RESULT_TYPE)) == 0;
  UNROLL
  for (int r = 0; r < 2; r++) {
    const int row = row_of(slot) + 2 * r;
    if (row >= rows) continue;
    UNROLL
    for (int j = 0; j < SUMS / 8; j++) {
      const int column = j * 16 + column_0;
      LANE_TYPE own[4];
      UNROLL
      for (int i = 0; i < 4; i++) own[i] = SHIFTED(sum[8 * j + 2 * r + i % 2 + i / 2 * 4], shift);
      __global RESULT_TYPE* const place = c + row * c_row + column * c_column;
      if (aligned && column + 4 <= columns) {
        JOIN(RESULT_TYPE, 4) v = adds ? *(__global JOIN(RESULT_TYPE, 4)*)place : (JOIN(RESULT_TYPE, 4))(0);
        v.x = result_of(own[0], v.x), v.y = result_of(own[1], v.y), v.z = result_of(own[2], v.z), v.w = result_of(own[3], v.w);
        *(__global JOIN(RESULT_TYPE, 4)*)place = v;
      } else {
        UNROLL
        for (int i = 0; i < 4; i++)
          if (column + i < columns) place[i * c_column] = result_of(own[i], adds ? place[i * c_column] : (RESULT_TYPE)0);
      }
    }
  }
}

// Add the products of tiles of two digits over all of k to the sums.
#ifdef __NV_CL_C_VERSION
#if HALVES
#define TYPES "m64n256k16.f32.f16.f16"
#elif SIGNS == 0
#define TYPES "m64n256k32.s32.u8.u8"
#elif SIGNS == 1
#define TYPES "m64n256k32.s32.s8.u8"
#elif SIGNS == 2
#define TYPES "m64n256k32.s32.u8.s8"
#else
#define TYPES "m64n256k32.s32.s8.s8"
#endif
#if HALVES
#define REGISTER "+f"
#define AS_THEY_ARE ", 1, 1, 0, 0"  // neither negative nor transposed
#else
#define REGISTER "+r"
#define AS_THEY_ARE ""
#endif
#define TIMES(step)                                                                                                     \
  "add.s64 a, %128, " TEXT(step * 2 * TILE_M) ";\n"                                                                     \
  "add.s64 b, %129, " TEXT(step * 2 * TILE_N) ";\n"                                                                     \
  "wgmma.mma_async.sync.aligned." TYPES " {"                                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"      \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"    \
  "%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"    \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"     \
  "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, a, b, yes" AS_THEY_ARE ";\n"
#define EIGHT(i)                                                                                                        \
  REGISTER(sum[i]), REGISTER(sum[i + 1]), REGISTER(sum[i + 2]), REGISTER(sum[i + 3]), REGISTER(sum[i + 4]),             \
  REGISTER(sum[i + 5]), REGISTER(sum[i + 6]), REGISTER(sum[i + 7])

static inline __attribute__((always_inline)) void add_products(SUM* sum, const int depth, int* stage, uint* round,
                                                               const uint base) {
  const uint group = get_local_id(0) / 128;
  // Descriptors without addresses: the distances of core matrices along the rows and along k, in units of 16 bytes.
  const ulong shape_a = 8ul << 32 | TILE_M << 16, shape_b = 8ul << 32 | TILE_N << 16;
  NO_UNROLL
  for (int d = 0; d < depth; d++) {
    const uint at = base + BARRIERS_BYTES + *stage * STAGE_BYTES;
    const ulong tile_a = shape_a | (at / 16 + group * 64), tile_b = shape_b | (at + BYTES_OF(TILE_M)) / 16;
    wait_for(FULL(*stage), *round);
    asm volatile("{.reg .b64 a, b; .reg .pred yes;\n"
                 "setp.eq.b64 yes, %128, %128;\n"
                 "wgmma.fence.sync.aligned;\n"
                 TIMES(0) TIMES(1) TIMES(2) TIMES(3)
                 "wgmma.commit_group.sync.aligned;\n"
                 "wgmma.wait_group.sync.aligned 0;}\n"
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56), EIGHT(64),
                   EIGHT(72), EIGHT(80), EIGHT(88), EIGHT(96), EIGHT(104), EIGHT(112), EIGHT(120)
                 : "l"(tile_a), "l"(tile_b) : "memory");
    if (get_local_id(0) % 32 == 0) arrive(EMPTY(*stage));
    next_stage(stage, round, STAGES);
  }
}
#else
static inline int digit_at(__global const uchar* tile, const int rows, const int slot, const int p, const bool is_signed) {
  const uchar digit = tile[(p / 16 * rows + slot) * 16 + p % 16];
  return is_signed ? (char)digit : digit;
}

#if HALVES
#define VALUE_AT(tile, rows, slot, p, sign) vload_half(((p) / CORE * rows + (slot)) * CORE + (p) % CORE, (__global const half*)tile)
#else
#define VALUE_AT(tile, rows, slot, p, sign) digit_at(tile, rows, slot, p, sign)
#endif
static inline void add_digits(SUM* sum, __global const uchar* a, __global const uchar* b) {
  const int item = get_local_id(0);
  for (int i = 0; i < SUMS; i++) {
    const int row = item / 32 * 16 + item % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + item % 4 * 2 + i % 2;
    for (int p = 0; p < CORES * CORE; p++)
      sum[i] += VALUE_AT(a, TILE_M, row, p, SIGNS & 1) * VALUE_AT(b, TILE_N, column, p, SIGNS & 2);
  }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void digits_product(const int m, const int n, const int depth, const int adds, const int swizzle, const int4 counts,
                    __global const uchar* a, __global const uchar* b, __global STORED_TYPE* c, const long c_offset,
                    const long c_row, const long c_column, const long4 c_strides) {
  const int matrices = counts.x * counts.y * counts.z * counts.w;
  const int parts = matrices * tiles_of_rows((m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, TILE_M, TILE_N);
#ifdef __NV_CL_C_VERSION
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma and setmaxnreg
  __local __attribute__((aligned(128))) uchar memory[BARRIERS_BYTES + STAGES * STAGE_BYTES];
  const uint base = (uint)(ulong)memory;
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  if (get_local_id(0) == 0) {
    for (int i = 0; i < STAGES; i++) {
      initialise(FULL(i), 1);
      initialise(EMPTY(i), 8);
    }
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) >= MULTIPLIERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (get_local_id(0) >= MULTIPLIERS + 32) return;
    fence_copies();
    for (int index = get_group_id(0); index < parts; index += get_num_groups(0)) {
      const Part part = part_of(index, matrices, m, n, depth, swizzle, a, b);
      for (int s = top_of(&part); s >= 0; s--)
        for (int i = first_of(&part, s); i <= last_of(&part, s); i++) {
          __global const uchar* from_a = part.a + i * BYTES_OF(TILE_M);
          __global const uchar* from_b = part.b + (s - i) * BYTES_OF(TILE_N);
          for (int d = 0; d < depth; d++) {
            const uint to = base + BARRIERS_BYTES + stage * STAGE_BYTES;
            if (get_local_id(0) == MULTIPLIERS) {
              wait_for(EMPTY(stage), round ^ 1);
              expect(FULL(stage), STAGE_BYTES);
              fetch(to, from_a, BYTES_OF(TILE_M), FULL(stage));
              fetch(to + BYTES_OF(TILE_M), from_b, BYTES_OF(TILE_N), FULL(stage));
            }
            from_a += DIGITS_A * BYTES_OF(TILE_M);
            from_b += DIGITS_B * BYTES_OF(TILE_N);
            next_stage(&stage, &round, STAGES);
          }
        }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#else
  if (get_local_id(0) >= MULTIPLIERS) return;
#endif
  for (int index = get_group_id(0); index < parts; index += get_num_groups(0)) {
    const Part part = part_of(index, matrices, m, n, depth, swizzle, a, b);
    __global RESULT_TYPE* const c_tile = (__global RESULT_TYPE*)c + c_offset + matrix_offset(part.matrix, counts, c_strides) +
                                         part.place.m * TILE_M * c_row + part.place.n * TILE_N * c_column;
    const int rows = m - part.place.m * TILE_M, columns = n - part.place.n * TILE_N;
    int adds_now = adds;
    SUM sum[SUMS];
    UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = 0;
    NO_UNROLL
    for (int s = top_of(&part); s >= 0; s--) {
      NO_UNROLL
      for (int i = first_of(&part, s); i <= last_of(&part, s); i++) {
#ifdef __NV_CL_C_VERSION
        add_products(sum, depth, &stage, &round, base);
#else
        for (int d = 0; d < depth; d++)
          add_digits(sum, part.a + (d * DIGITS_A + i) * BYTES_OF(TILE_M), part.b + (d * DIGITS_B + s - i) * BYTES_OF(TILE_N));
#endif
      }
      const bool stores = s == 0 || IS_LONG && s <= 4;
      if (stores) {
        store_sums(sum, 8 * s, adds_now, c_tile, c_row, c_column, rows, columns);
        adds_now = 1;
      }
      UNROLL
      for (int i = 0; i < SUMS; i++) sum[i] = stores ? 0 : (SUM)((uint)sum[i] << 8);
    }
  }
}
