// Integers as digits in base 256, which tensor cores multiply: x = sum of d[i]*256^i with d[i] in -128..127, so that small
// numbers of either sign have few. What exceeds the digits of a result is left out: modulo 2^(8*digits) nothing changes. An
// operand of one digit has the low bytes as they are.
//
// Both operands are packed into tiles of ROWS rows and 128 bytes along k:
//   [digit][core][slot][16]   16 bytes along k are a core, of CORE elements
// Eight slots of a core are a core matrix of wgmma, not swizzled. Slots permute each 16 rows, so that a work-item's share of
// the sums is four neighbouring columns, as in tensor_core/tile.cl.
// Tiles follow one another along k, then panels of ROWS rows, then the matrices of a batch. A directory follows the last
// tile: the number of digits that each tile uses, as uint. float16 has one "digit", of two bytes, and no directory.
#define CORES 8
#define TILE_M 128  // ROWS of A
#define TILE_N 256  // ROWS of B
#define BYTES_OF(rows) ((rows) * CORES * 16)  // of a digit of a tile
#define HALVES (LANE == 4)
#define CORE (HALVES ? 8 : 16)

static inline int slot_of(int row) { return (row & ~15) | (row & 2) << 2 | (row & 12) >> 1 | (row & 1); }
static inline int row_of(int slot) { return (slot & ~15) | (slot & 8) >> 2 | (slot & 6) << 1 | (slot & 1); }

static inline __global uint* directory_of(__global const uchar* packed, const long tiles, const int bytes) {
  return (__global uint*)(packed + tiles * bytes);
}
