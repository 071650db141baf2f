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
#define DIGITS_OF(x) (DIGITS == 1 ? (x) & 255 : ((x) + OFFSET) ^ OFFSET)

#if LOADED == 0
#define ELEMENT(x) ((x) != 0)
#else
#define ELEMENT(x) ((LANE_TYPE)(x))
#endif

static inline uint four_bytes(const LANE_TYPE* x, const int digit) {
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
  const int row_0 = tile / depth % panels * ROWS, p_0 = tile % depth * DEPTH, item = get_local_id(0);
  const bool goes_down = abs_diff(from_row, 0L) <= abs_diff(from_column, 0L);
  from += from_offset + matrix_offset(matrix, counts, from_strides) + row_0 * from_row + p_0 * from_column;
  __global uchar* const here = to + (long)tile * DIGITS * BYTES_OF(ROWS);
  if (DIGITS > 1) {
    if (item == 0) used = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  LANE_TYPE any = 0;
  for (int block = item; block < ROWS * CORES; block += GROUP) {
    const int row = goes_down ? block % ROWS : block / CORES, core = goes_down ? block / ROWS : block % CORES;
    const int count = row_0 + row < rows ? min(16, columns - p_0 - core * 16) : 0;
    __global const LOADED_TYPE* const own = from + row * from_row + core * 16 * from_column;
    LANE_TYPE x[16];
    if (count == 16 && from_column == 1 && ((ulong)own & 15) == 0) {
      union {
        uint4 vectors[sizeof(LOADED_TYPE)];
        LOADED_TYPE elements[16];
      } all;
      #pragma unroll
      for (int i = 0; i < (int)sizeof(LOADED_TYPE); i++) all.vectors[i] = ((__global const uint4*)own)[i];
      #pragma unroll
      for (int i = 0; i < 16; i++) x[i] = ELEMENT(all.elements[i]);
    } else {
      #pragma unroll
      for (int i = 0; i < 16; i++) x[i] = i < count ? ELEMENT(own[i * from_column]) : 0;
    }
    #pragma unroll
    for (int i = 0; i < 16; i++) {
      x[i] = DIGITS_OF(x[i]);
      any |= x[i];
    }
    #pragma unroll
    for (int digit = 0; digit < DIGITS; digit++)
      ((__global uint4*)here)[(digit * CORES + core) * ROWS + slot_of(row)] =
          (uint4)(four_bytes(x, digit), four_bytes(x + 4, digit), four_bytes(x + 8, digit), four_bytes(x + 12, digit));
  }
  if (DIGITS > 1) {
    if (any != 0) atomic_max(&used, (uint)min(DIGITS, LAST_OF(any)));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) directory_of(to, (long)matrices * panels * depth, DIGITS * BYTES_OF(ROWS))[tile] = used;
  }
}
