// Copies a matrix into tiles of digits (exact/digits.cl), padded with zeros.
//   rows, columns   of the matrix;  depth: tiles along k
// Work-groups: matrices x panels x depth, of GROUP work-items.
#ifndef ROWS
#error "ROWS: rows of a tile, 128 or 256"
#endif
#ifndef DIGITS
#error "DIGITS: of each element"
#endif
#ifndef GROUP
#error "GROUP: work-items of a work-group"
#endif
#if LANE == 3
#define OFFSET 0x8080808080808080ul
#define LAST_OF(x) ((71 - (int)clz(x)) / 8)
#else
#define OFFSET 0x80808080u
#define LAST_OF(x) ((39 - (int)clz(x)) / 8)
#endif
// A sum with carries, and the digits' signs taken back.
#define DIGITS_OF(x) (HALVES ? (x) : DIGITS == 1 ? (x) & 255 : ((x) + OFFSET) ^ OFFSET)

#if HALVES
#define WORD_TYPE uint
#define ELEMENT_TYPE ushort
#define ELEMENT(x) (x)
#else
#define WORD_TYPE LANE_TYPE
#define ELEMENT_TYPE LOADED_TYPE
#define ELEMENT(x) (LOADED == 0 ? (WORD_TYPE)((x) != 0) : (WORD_TYPE)(x))
#endif

// The four bytes number i of a core.
static inline uint bytes_of(const WORD_TYPE* x, const int digit, const int i) {
  if (HALVES) return (uint)(x[2 * i] | x[2 * i + 1] << 16);
  x += 4 * i;
  return (uint)(x[0] >> 8 * digit) & 255 | ((uint)(x[1] >> 8 * digit) & 255) << 8 |
         ((uint)(x[2] >> 8 * digit) & 255) << 16 | (uint)(x[3] >> 8 * digit) << 24;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void digits_pack(const int rows, const int columns, const int depth, const int4 counts,
                 __global const LOADED_TYPE* from, const long from_offset, const long from_row, const long from_column,
                 const long4 from_strides, __global uchar* to) {
  __local uint used;
  const int panels = (rows + ROWS - 1) / ROWS, matrices = counts.x * counts.y * counts.z * counts.w;
  const uint tile = get_group_id(0), matrix = tile / (panels * depth);
  const int row_0 = tile / depth % panels * ROWS, p_0 = tile % depth * CORES * CORE, item = get_local_id(0);
  const bool goes_down = abs_diff(from_row, 0L) <= abs_diff(from_column, 0L);
  from += from_offset + matrix_offset(matrix, counts, from_strides) + row_0 * from_row + p_0 * from_column;
  __global uchar* const here = to + (long)tile * DIGITS * BYTES_OF(ROWS);
  if (DIGITS > 1) {
    if (item == 0) used = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  WORD_TYPE any = 0;
  for (int block = item; block < ROWS * CORES; block += GROUP) {
    const int row = goes_down ? block % ROWS : block / CORES, core = goes_down ? block / ROWS : block % CORES;
    const int count = row_0 + row < rows ? min(CORE, columns - p_0 - core * CORE) : 0;
    __global const ELEMENT_TYPE* const own =
        (__global const ELEMENT_TYPE*)(from + row * from_row + core * CORE * from_column);
    WORD_TYPE x[CORE];
    if (count == CORE && from_column == 1 && ((ulong)own & 15) == 0) {
      union {
        uint4 vectors[CORE * sizeof(ELEMENT_TYPE) / 16];
        ELEMENT_TYPE elements[CORE];
      } all;
      #pragma unroll
      for (int i = 0; i < CORE * (int)sizeof(ELEMENT_TYPE) / 16; i++) all.vectors[i] = ((__global const uint4*)own)[i];
      #pragma unroll
      for (int i = 0; i < CORE; i++) x[i] = ELEMENT(all.elements[i]);
    } else {
      #pragma unroll
      for (int i = 0; i < CORE; i++) x[i] = i < count ? ELEMENT(own[i * from_column]) : 0;
    }
    #pragma unroll
    for (int i = 0; i < CORE; i++) {
      x[i] = DIGITS_OF(x[i]);
      any |= x[i];
    }
    #pragma unroll
    for (int digit = 0; digit < DIGITS; digit++)
      ((__global uint4*)here)[(digit * CORES + core) * ROWS + slot_of(row)] =
          (uint4)(bytes_of(x, digit, 0), bytes_of(x, digit, 1), bytes_of(x, digit, 2), bytes_of(x, digit, 3));
  }
  if (DIGITS > 1) {
    if (any != 0) atomic_max(&used, (uint)min(DIGITS, LAST_OF(any)));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) directory_of(to, (long)matrices * panels * depth, DIGITS * BYTES_OF(ROWS))[tile] = used;
  }
}
