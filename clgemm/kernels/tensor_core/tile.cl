// The packed tiles of the tensor family: TILE_ROWS rows of an operand, 64 of k, each element in two parts of fp16. With tf32
// they have 32 of k, and parts are fp32 numbers that tensor cores read as tf32: half as fast, with an exponent for nearly
// every element.
//   byte 0        high[core][slot][8]      the element over its row's scale, rounded to 11 bits; with tf32 [core][slot][4]
//   PART_BYTES    low[core][slot][8]       the rest, rounded to 11 bits
//   SCALES_AT     scale[row]               fp32: a power of two for the row's elements in the tile
//   LIST_AT       list[LIST_MOST]          outliers {row | p << 8, the element}: zero in the parts, added apart
//   COMMON_AT     common                   fp32: the scale of all rows, or zero if they differ
// With INT8, both parts also in bytes, as multiples of a step, where the low part was:
//   PART_BYTES    high_bytes[core][slot][16]   the high part over the step
//   LOW_BYTES_AT  low_bytes[core][slot][16]    the low part over step/FINER
//   STEP_AT       step                         fp32
// Tiles follow one another along k, then panels of TILE_ROWS rows, then the matrices of a batch; a matrix that is
// repeated is packed once. A directory follows the last tile: the length of each tile's list, as uint.
// A core is 16 bytes along k. Eight slots of one core are a core matrix of wgmma: 128 contiguous bytes, not swizzled. Core
// matrices lie TILE_ROWS*16 bytes apart along k, and 128 bytes along the rows.
// Slots permute each 16 rows, so that a work-item's share of an accumulator is four neighbouring columns: one wide
// store of C, one wide load of scales.
#ifndef GUARD
#error "GUARD: 1 to list outliers, the elements that two parts cannot hold"
#endif
#ifndef INT8
#error "INT8: 1 for parts in bytes besides the high parts, 0 for low parts"
#endif
#define TILE_ROWS 128
#define PART_BYTES (16 * TILE_ROWS * 8)
#define SCALES_AT (2 * PART_BYTES)
#define LIST_AT (SCALES_AT + 4 * TILE_ROWS)
#define LIST_MOST 8  // with more the error bound would not hold: docs/tensor_cores.md
#define COMMON_AT (LIST_AT + 8 * LIST_MOST)
#define LOW_BYTES_AT (PART_BYTES + PART_BYTES / 2)
#define STEP_AT (COMMON_AT + 4)
#define FINER 4096
#define TILE_BYTES (COMMON_AT + 64)  // whole cache lines
#define OVERFULL (1u << 30)  // the least count of outliers once a list is full

// Operands and their packed tiles.
typedef struct {
  int matrices;  // of the batch: `stride` elements apart, or with 0 all the same
  int m, n, k;
  int least;  // elements from 2^least over their scale on are split; with tf32 from 2^TF32_LEAST on
  uint most;  // outliers, above which the fallback makes the product
  __global const float* a;
  long a_row, a_column, a_stride;
  __global const float* b;
  long b_row, b_column, b_stride;
  __global uchar *packed_a, *packed_b;
  __global uint* count;  // outliers
} Product;

static inline int panels_of(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }
static inline int elements_of_core(const bool tf32) { return tf32 ? 4 : 8; }
static inline int depth_of_tile(const bool tf32) { return 8 * elements_of_core(tf32); }
static inline int depths_of(const int k, const bool tf32) { return (k + depth_of_tile(tf32) - 1) / depth_of_tile(tf32); }
static inline int panels_of_a(const Product* p) { return (p->a_stride == 0 ? 1 : p->matrices) * panels_of(p->m); }
static inline int panels_of_b(const Product* p) { return (p->b_stride == 0 ? 1 : p->matrices) * panels_of(p->n); }
// Those that are split: if B is A's transpose, the tiles of A serve for both.
static inline int split_panels(const Product* p) { return panels_of_a(p) + (p->packed_b == p->packed_a ? 0 : panels_of_b(p)); }

// The lengths of a packed operand's lists.
static inline __global uint* directory_of(__global const uchar* packed, int tiles) {
  return (__global uint*)(packed + (long)tiles * TILE_BYTES);
}

// The slot of a row: bits 3 to 0 of the slot are bits 1, 3, 2, 0 of the row.
static inline int slot_of(int row) {
  return (row & ~15) | (row & 2) << 2 | (row & 12) >> 1 | (row & 1);
}

// A barrier for a warp.
static inline void warp_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
