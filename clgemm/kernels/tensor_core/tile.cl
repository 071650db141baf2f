// The packed tiles of the tensor family: TILE_ROWS rows of an operand, TILE_K of k, each element in two parts.
//   byte 0        high[core][slot][CORE]   the element over its row's scale, rounded to eleven bits
//   PART_BYTES    low[core][slot][CORE]    what is left of it, rounded likewise
//   SCALES_AT     scale[row]               fp32: a power of two for the row's TILE_K elements
//   LIST_AT       list[LIST_MOST]          {row | p << 8, the element}: zero above, multiplied aside
//   COMMON_AT     common                   fp32: the scale that all rows have, or zero
// With INT8 both parts are in bytes where the low part was, multiples of a step, as a product of a low part needs no more:
//   PART_BYTES    high_bytes[core][slot][16]   the high part over the step
//   LOW_BYTES_AT  low_bytes[core][slot][16]    the low part over a FINER of the step
//   STEP_AT       step                         fp32
// Tiles follow one another along k, panels of TILE_ROWS rows, and matrices of a stack, those that are repeated once.
// Behind the last tile is a directory: the length of every tile's list, uint each.
// Parts are fp16 or, with TF32, fp32 numbers that the tensor cores take for tf32: half as fast, and with an exponent
// for nearly every element. core = p/CORE; eight slots of one core are one of wgmma's core matrices, 128 bytes in a
// run, unswizzled: neighbours along k lie TILE_ROWS*16 bytes apart and along the rows 128.
// Slots permute each sixteen rows so that a work-item's share of an accumulator is four neighbouring
// columns: a wide store of C, a wide load of the scales.
#ifndef GUARD
#error "GUARD: 1 to keep aside the elements that two halves cannot hold"
#endif
#ifndef TF32
#error "TF32: 1 for parts in tf32, 0 for fp16"
#endif
#ifndef INT8
#error "INT8: 1 for bytes beside the high parts, 0 for low parts like them"
#endif
#define CORE (TF32 ? 4 : 8)
#define TILE_ROWS 128
#define TILE_K (8 * CORE)
#define PART_BYTES (16 * TILE_ROWS * 8)
#define SCALES_AT (2 * PART_BYTES)
#define LIST_AT (SCALES_AT + 4 * TILE_ROWS)
#define LIST_MOST 8  // with more the bound would not hold: see tensor_core/wgmma.cl
#define COMMON_AT (LIST_AT + 8 * LIST_MOST)
#define LOW_BYTES_AT (PART_BYTES + PART_BYTES / 2)
#define STEP_AT (COMMON_AT + 4)
#define FINER 4096
#define TILE_BYTES (COMMON_AT + 64)  // whole lines of the cache
#define OVERFULL (1u << 30)  // the least count of listed elements once a list is too long

// Operands, and where their tiles go.
typedef struct {
  int matrices;  // in a stack: `stride` elements apart, or with 0 all the same
  int m, n, k;
  int least;  // the power of two, over its scale, from which on an element is split
  uint most;  // listed elements, above which another kernel makes the product
  __global const float* a;
  long a_row, a_column, a_stride;
  __global const float* b;
  long b_row, b_column, b_stride;
  __global uchar *packed_a, *packed_b;
  __global uint* count;  // listed elements
} Product;

static inline int panels_of(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }
static inline int depths_of(int k) { return (k + TILE_K - 1) / TILE_K; }
static inline int panels_of_a(const Product* p) { return (p->a_stride == 0 ? 1 : p->matrices) * panels_of(p->m); }
static inline int panels_of_b(const Product* p) { return (p->b_stride == 0 ? 1 : p->matrices) * panels_of(p->n); }

// The lengths of a packed operand's lists.
static inline __global uint* directory_of(__global const uchar* packed, int tiles) {
  return (__global uint*)(packed + (long)tiles * TILE_BYTES);
}

// The slot of a row: of its sixteen, bits 3210 become 1 32 0.
static inline int slot_of(int row) {
  return (row & ~15) | (row & 2) << 2 | (row & 12) >> 1 | (row & 1);
}

// Wait for the warp: what its work-items wrote is there for all of them.
static inline void warp_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
