// Adds the products of outliers to C, the elements that no tile could hold (tensor_core/tile.cl).
//   C[i, :] += alpha*x*B[p, :]   for each outlier x of A, in row i and column p
//   C[:, j] += alpha*A[:, p]*x   for each outlier x of B, in row p and column j, where A's element is no outlier
//                                itself: no product is added twice
// A warp adds to the 16 rows of C that it has stored, in IEEE single precision, so that Inf and NaN go where they belong.

// An outlier of a list. A list that is too long is never read: the fallback makes the product.
static inline uint2 entry_of(__global const uchar* tile, uint index) {
  return ((__global const uint2*)(tile + LIST_AT))[index];
}

static inline bool is_outlier_of_a(__global const uchar* tile, uint length, uint place) {
  for (uint i = 0; i < length; i++)
    if (entry_of(tile, i).x == place) return true;
  return false;
}

// Which of the next 32 tiles of a panel have outliers, one bit each.
static inline uint tiles_with_outliers(__global const uint* lengths, int depth, int depths) {
  const int lane = get_local_id(0) % 32, here = depth + lane < depths && lengths[depth + lane] != 0;
  uint bits;
  asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "=r"(bits) : "r"(here));
  return bits;
}

static inline uint any_of_warp(uint found) {
  uint any;
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p;}"
               : "=r"(any) : "r"(found));
  return any;
}

// Which panels of a tile of C have outliers: bit 0 for its panel of A, bits 1 and 2 for its panels of B.
static inline uint panels_with_outliers(__global const uint* lengths_a, __global const uint* lengths_b, int panels, int depths) {
  uint in_a = 0, in_b = 0, in_next = 0;
  #pragma unroll 4
  for (int depth = get_local_id(0) % 32; depth < depths; depth += 32) {
    in_a |= lengths_a[depth];
    in_b |= lengths_b[depth];
    if (panels == 2) in_next |= lengths_b[depths + depth];
  }
  return any_of_warp(in_a) | any_of_warp(in_b) << 1 | any_of_warp(in_next) << 2;
}

// A tile of C: the beginnings of the tile, of its operands and of their lists; `rows` and `columns` of C from there on.
typedef struct {
  __global const uchar *packed_a, *packed_b;
  __global const uint *lengths_a, *lengths_b;
  __global const float *a, *b;
  __global float* c;
  long a_row, a_column, b_row, b_column, c_row, c_column;
  int rows, columns, depths, depth_of_tile;
  float alpha;
} Tile;

// Both add to 16 rows from `first` on, columns `left` to `right`: what one warp has stored.
static inline void add_outliers_of_a(const Tile* t, const int first, const int left, const int right) {
  const int lane = get_local_id(0) % 32;
  for (int depth = 0; depth < t->depths; depth += 32)
    for (uint bits = tiles_with_outliers(t->lengths_a, depth, t->depths); bits != 0; bits &= bits - 1) {
      const int here = depth + 31 - clz((int)(bits & (0u - bits)));
      for (uint i = 0; i < t->lengths_a[here]; i++) {
        const uint2 entry = entry_of(t->packed_a + (long)here * TILE_BYTES, i);
        const int row = entry.x & 255;
        const long p = here * t->depth_of_tile + (entry.x >> 8);
        if (row / 16 == first / 16) {
          // Four loads are under way at once.
          for (int column = left + lane; column < min(right, t->columns); column += 128) {
            float old[4], of_b[4];
            #pragma unroll
            for (int j = 0; j < 4; j++)
              if (column + 32 * j < min(right, t->columns)) {
                of_b[j] = t->b[(column + 32 * j) * t->b_row + p * t->b_column];
                old[j] = t->c[row * t->c_row + (column + 32 * j) * t->c_column];
              }
            #pragma unroll
            for (int j = 0; j < 4; j++)
              if (column + 32 * j < min(right, t->columns))
                t->c[row * t->c_row + (column + 32 * j) * t->c_column] = old[j] + t->alpha * (as_float(entry.y) * of_b[j]);
          }
          warp_barrier();
        }
      }
    }
}

static inline void add_outliers_of_b(const Tile* t, const int first, const int left, const int right, const int panel) {
  const int lane = get_local_id(0) % 32, row = first + lane;
  __global const uint* lengths = t->lengths_b + panel * t->depths;
  for (int depth = 0; depth < t->depths; depth += 32)
    for (uint bits = tiles_with_outliers(lengths, depth, t->depths); bits != 0; bits &= bits - 1) {
      const int here = depth + 31 - clz((int)(bits & (0u - bits)));
      for (uint i = 0; i < lengths[here]; i++) {
        const uint2 entry = entry_of(t->packed_b + (long)(panel * t->depths + here) * TILE_BYTES, i);
        const int column = panel * TILE_ROWS + (entry.x & 255);
        const long p = here * t->depth_of_tile + (entry.x >> 8);
        const uint place = row | (entry.x >> 8) << 8;
        if (left <= column && column < right && lane < 16 && row < t->rows &&
            !is_outlier_of_a(t->packed_a + (long)here * TILE_BYTES, t->lengths_a[here], place))
          t->c[row * t->c_row + column * t->c_column] +=
              t->alpha * (t->a[row * t->a_row + p * t->a_column] * as_float(entry.y));
        warp_barrier();
      }
    }
}
