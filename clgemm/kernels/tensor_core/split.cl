// A work-group splits operands into the tiles of tensor_core/tile.cl, padded with zeros.
//   a[matrix*a_stride + row*a_row + p*a_column]       m x k, any strides
//   b[matrix*b_stride + column*b_row + p*b_column]    n x k, any strides: the transpose of B
//   packed[(panel*depths + depth)*TILE_BYTES]         panel = row/TILE_ROWS, depth = p/64; with tf32 p/32
// The elements of a row in a tile share the scale 2^(e - top), where 2^e <= the largest of them < 2^(e+1). All rows of a tile
// have the scale of the largest row if their own are near it and no element is then too small. The high part is an element
// over its scale, rounded to 11 bits. The low part is the rest, rounded to 11 bits.
//
// The error, with u = 2^-24: a low part is at most 2^-11 of its element and rounded to 11 bits, so that both parts together
// are off by at most 2u of the element. Where fp16 is subnormal they are off by 2^-25 over the scale: of an element of at
// least 2^least over its scale, that is 2^(-1-least) u.
// With GUARD, other elements are outliers: those that are too small beside their row's largest, huge, Inf or NaN. They
// are zero in the split and go to the tile's list. Scales lie between 2^-63 and 2^63, so that the product of two is a
// normal number.
//
// With INT8 a tile has a step. It is the least for which all high parts are at most 127 steps, and all low parts at most
// 127 steps/FINER; where each row has its own scale, it is one that suits any. docs/tensor_cores.md has the error.
//
// `count` grows by the number of outliers (GUARD only). Above `most` of them the fallback makes the product.
// SPLIT_ITEMS work-items split a tile: all of a work-group, or its first.
#define OWN 4              // cores of a row that a work-item splits
#define ABREAST (8 / OWN)  // work-items for each row
#define SPLIT_ITEMS (ABREAST * TILE_ROWS)
#define SPLIT_WARPS (SPLIT_ITEMS / 32)
#define HALVES_TOP 14
#define TF32_TOP 30
#define TF32_LEAST -50  // relative to the scale: the smallest products are still normal numbers
// The exponents by which the largest elements of rows that share a scale may differ; tf32 has all exponents.
#define HALVES_NEAR (INT8 ? 2 : 6)
#define TF32_NEAR 255
#define MOST_BYTE 127
#define LEAST_HIGH 16384.0f  // 2^HALVES_TOP: the largest high part of a tile is at least this, and less than twice this
#define MOST_LOW 8.0f        // the largest low part

static inline void split_core_tf32(const float* x, float up, uint4* high, uint4* low) {
  high->x = eleven_bits(x[0] * up), low->x = eleven_bits(x[0] * up - as_float(high->x));
  high->y = eleven_bits(x[1] * up), low->y = eleven_bits(x[1] * up - as_float(high->y));
  high->z = eleven_bits(x[2] * up), low->z = eleven_bits(x[2] * up - as_float(high->z));
  high->w = eleven_bits(x[3] * up), low->w = eleven_bits(x[3] * up - as_float(high->w));
}

static inline void split_core(const float* x, float up, uint4* high, uint4* low) {
  uint part;
  high->x = split_two(x[0] * up, x[1] * up, &part), low->x = part;
  high->y = split_two(x[2] * up, x[3] * up, &part), low->y = part;
  high->z = split_two(x[4] * up, x[5] * up, &part), low->z = part;
  high->w = split_two(x[6] * up, x[7] * up, &part), low->w = part;
}

#if INT8
static inline float largest_low(float largest, float x, float y) {
  const float2 near = floats(halves(x, y));
  return fmax(largest, fmax(fabs(x - near.x), fabs(y - near.y)));
}

// Four numbers times `by`, rounded to integers of a byte.
static inline uint bytes(float x, float y, float z, float w, float by) {
  const float ones = 12582912.0f;  // 1.5 * 2^23: the last bit of a number of this size counts 1
  const uint first = as_uint(fma(x, by, ones)), second = as_uint(fma(y, by, ones));
  const uint third = as_uint(fma(z, by, ones)), fourth = as_uint(fma(w, by, ones));
  return (first & 255) | (second & 255) << 8 | (third & 255) << 16 | fourth << 24;
}

static inline void split_core_to_bytes(const float* x, float up, float step, uint4* high, uint2* high_bytes,
                                       uint2* low_bytes) {
  float h[8], l[8];
  uint pairs[4];
  #pragma unroll
  for (int i = 0; i < 8; i += 2) {
    h[i] = x[i] * up, h[i + 1] = x[i + 1] * up;
    pairs[i / 2] = halves(h[i], h[i + 1]);
    const float2 near = floats(pairs[i / 2]);
    l[i] = h[i] - near.x, l[i + 1] = h[i + 1] - near.y;
  }
  high->x = pairs[0], high->y = pairs[1], high->z = pairs[2], high->w = pairs[3];
  const float by = 1.0f / step;
  high_bytes->x = bytes(h[0], h[1], h[2], h[3], by), high_bytes->y = bytes(h[4], h[5], h[6], h[7], by);
  low_bytes->x = bytes(l[0], l[1], l[2], l[3], FINER * by), low_bytes->y = bytes(l[4], l[5], l[6], l[7], FINER * by);
}
#endif

// Local memory that work-items share while they split a tile.
typedef struct {
  uint largest[SPLIT_ITEMS], warp_largest[SPLIT_WARPS], warp_least[SPLIT_WARPS], warp_smallest[SPLIT_WARPS];
  uint warp_low[SPLIT_WARPS];  // INT8 only
  uint listed, before;
  uint2 list[LIST_MOST];
} SplitMemory;

// A barrier for the work-items that split.
static inline void split_barrier(void) { asm volatile("bar.sync 4, 256;" ::: "memory"); }

// What a work-item splits of a tile: OWN cores of a row.
typedef struct {
  bool is_a;
  int tile, row, first;  // the tile of its operand; the row in there; the first core: the others are ABREAST apart
  float x[OWN][8];       // the elements: 8 of each core, with tf32 4
} Share;

// Load this work-item's share of a tile: `index` counts the tiles of A, then those of B. `tf32` is a constant.
static inline __attribute__((always_inline)) void load_share(const Product* p, const bool tf32, const int index, Share* own) {
  const int core_size = elements_of_core(tf32);
  const int item = get_local_id(0), depths = depths_of(p->k, tf32), tiles_a = panels_of_a(p) * depths;
  const bool is_a = index < tiles_a;
  const int tile = is_a ? index : index - tiles_a, rows = is_a ? p->m : p->n;
  const int matrix = tile / (panels_of(rows) * depths), place = tile % (panels_of(rows) * depths);
  const long row_stride = is_a ? p->a_row : p->b_row, column_stride = is_a ? p->a_column : p->b_column;
  const int row_0 = place / depths * TILE_ROWS, k_0 = place % depths * depth_of_tile(tf32);
  __global const float* from = (is_a ? p->a + matrix * p->a_stride : p->b + matrix * p->b_stride) + row_0 * row_stride + k_0 * column_stride;

  // Neighbours lie along the source's shorter stride.
  const bool along_k = column_stride * column_stride <= row_stride * row_stride;
  const int row = along_k ? item / (16 * ABREAST) * 16 + item % 16 : item % TILE_ROWS;
  const int first = along_k ? item / 16 % ABREAST : item / TILE_ROWS;
  const int rows_here = rows - row_0, depth_here = p->k - k_0;
  own->is_a = is_a, own->tile = tile, own->row = row, own->first = first;
  from += row * row_stride;
  const bool whole = rows_here >= TILE_ROWS && depth_here >= depth_of_tile(tf32);
  if (whole && column_stride == 1 && row_stride % 4 == 0 && ((ulong)from & 15) == 0) {
    #pragma unroll
    for (int q = 0; q < OWN; q++) {
      __global const float4* vectors = (__global const float4*)(from + (first + ABREAST * q) * core_size);
      #pragma unroll
      for (int i = 0; i < core_size / 4; i++) {
        const float4 v = vectors[i];
        own->x[q][4 * i] = v.x, own->x[q][4 * i + 1] = v.y, own->x[q][4 * i + 2] = v.z, own->x[q][4 * i + 3] = v.w;
      }
    }
  } else {
    const int depth_mine = row < rows_here ? depth_here : 0;
    __global const float* next = from + first * core_size * column_stride;
    #pragma unroll
    for (int q = 0; q < OWN; q++) {
      #pragma unroll
      for (int i = 0; i < core_size; i++) {
        own->x[q][i] = (first + ABREAST * q) * core_size + i < depth_mine ? *next : 0.0f;
        next += column_stride;
      }
      next += (ABREAST - 1) * core_size * column_stride;
    }
  }
}

// Split a tile whose shares are loaded. False if a fallback makes the product. Call split_barrier before the memory is used
// again. `tf32` is a constant.
static inline __attribute__((always_inline)) bool split_tile(const Product* p, const bool tf32, Share* own,
                                                             __local SplitMemory* s) {
  const int core_size = elements_of_core(tf32), top = tf32 ? TF32_TOP : HALVES_TOP, near = tf32 ? TF32_NEAR : HALVES_NEAR;
  const int least = tf32 ? TF32_LEAST : p->least, least_e = 127 + top - 63;  // the second biased
  const uint huge_bits = (uint)(127 + top + 64) << 23;
  const int item = get_local_id(0), row = own->row, first = own->first;
  float (*x)[8] = own->x;
  __global uchar* to = (own->is_a ? p->packed_a : p->packed_b) + (long)own->tile * TILE_BYTES;
#if GUARD
  const uint so_far = item == 0 ? *(volatile __global const uint*)p->count : 0;  // early, to hide its latency
#endif

  uint size_here = 0, smallest = -1;  // the largest; the smallest that is not zero, minus one
  #pragma unroll
  for (int q = 0; q < OWN; q++)
    #pragma unroll
    for (int i = 0; i < core_size; i++) {
      const uint size = as_uint(x[q][i]) & 0x7fffffff;
      size_here = max(size_here, size);
      smallest = min(smallest, size - 1);
    }
  const bool huge = size_here >= huge_bits;
  if (huge) {
    size_here = 0;
    #pragma unroll
    for (int q = 0; q < OWN; q++)
      #pragma unroll
      for (int i = 0; i < core_size; i++) {
        const uint size = as_uint(x[q][i]) & 0x7fffffff;
        size_here = max(size_here, size < huge_bits ? size : 0);
      }
    smallest = 0;
  }
  s->largest[first * TILE_ROWS + row] = size_here;
  const uint largest_here = largest_of_warp(size_here), smallest_here = ~largest_of_warp(~smallest);
  const uint least_here = ~largest_of_warp(size_here == 0 ? 0 : ~size_here);  // of the largest that are not zero
  if (item % 32 == 0) {
    s->warp_largest[item / 32] = largest_here;
    s->warp_least[item / 32] = least_here;
    s->warp_smallest[item / 32] = smallest_here;
  }
#if GUARD
  if (item == 0) {
    s->listed = 0;
    s->before = so_far;
  }
  split_barrier();
  if (s->before > p->most) return false;  // the fallback does not read the tiles
#else
  split_barrier();
#endif
  uint row_largest = 0;
  #pragma unroll
  for (int i = 0; i < ABREAST; i++) row_largest = max(row_largest, s->largest[i * TILE_ROWS + row]);
  const uint tile_largest = largest_of_warp(s->warp_largest[item % SPLIT_WARPS]);
  const uint tile_least = ~largest_of_warp(~s->warp_least[item % SPLIT_WARPS]);
  const uint tile_smallest = ~largest_of_warp(~s->warp_smallest[item % SPLIT_WARPS]);
  const int tile_e = max((int)(tile_largest >> 23), least_e);  // biased, as all here
  const uint tiny_of_tile = (uint)(tile_e - top + least) << 23;  // smaller elements are outliers
  const bool common = tile_smallest >= tiny_of_tile - 1 && (int)(tile_least >> 23) >= tile_e - near;
  const int e = common ? tile_e : max((int)(row_largest >> 23), least_e);
  const uint tiny = (uint)(e - top + least) << 23;
  const float scale = as_float((uint)(e - top) << 23);
  if (first == 0) ((__global float*)(to + SCALES_AT))[row] = scale;
  if (item == 0) *(__global float*)(to + COMMON_AT) = common ? scale : 0.0f;

#if GUARD
  if ((huge || smallest < tiny - 1) && *(volatile __local uint*)&s->listed <= LIST_MOST) {
    uint here = 0;
    #pragma unroll
    for (int q = 0; q < OWN; q++)
      #pragma unroll
      for (int i = 0; i < core_size; i++) here += is_outlier(x[q][i], tiny, huge_bits);
    uint place = atomic_add(&s->listed, here);
    if (place + here <= LIST_MOST) {
      #pragma unroll
      for (int q = 0; q < OWN; q++)
        #pragma unroll
        for (int i = 0; i < core_size; i++)
          if (is_outlier(x[q][i], tiny, huge_bits)) {
            uint2 entry;
            entry.x = (uint)(row | ((first + ABREAST * q) * core_size + i) << 8);
            entry.y = as_uint(x[q][i]);
            s->list[place++] = entry;
            x[q][i] = 0.0f;
          }
    }
  }
#endif

#if GUARD
  split_barrier();
  if (s->listed > LIST_MOST) {  // the fallback does not read the tiles
    if (item == 0) atomic_max(p->count, OVERFULL);
    return false;
  }
#endif
  const float up = as_float((uint)(127 + 127 + top - e) << 23);
  const int slot = slot_of(row);
#if INT8
  float low_here = 0.0f;
  #pragma unroll
  for (int q = 0; q < OWN; q++)
    #pragma unroll
    for (int i = 0; i < core_size; i += 2) low_here = largest_low(low_here, x[q][i] * up, x[q][i + 1] * up);
  const uint warp_low = largest_of_warp(as_uint(fmin(low_here, MOST_LOW)));  // fmin drops NaN, of elements that are too large
  if (item % 32 == 0) s->warp_low[item / 32] = warp_low;
  split_barrier();
  const float tile_low = as_float(largest_of_warp(s->warp_low[item % SPLIT_WARPS]));
  const float tile_high = fmax(as_float(tile_largest) * up, LEAST_HIGH);
  const float step = (common ? fmax(tile_high, FINER * tile_low) : 2 * LEAST_HIGH) / MOST_BYTE;
  if (item == 0) *(__global float*)(to + STEP_AT) = step;
#endif
  #pragma unroll
  for (int q = 0; q < OWN; q++) {
    const int core = first + ABREAST * q;
    __global uint4* to_high = (__global uint4*)(to + (core * TILE_ROWS + slot) * 16);
#if INT8
    uint2 high_bytes, low_bytes;
    uint4 high;
    split_core_to_bytes(x[q], up, step, &high, &high_bytes, &low_bytes);
    const int at = (core / 2 * TILE_ROWS + slot) * 16 + core % 2 * 8;  // sixteen bytes of k are one core
    *(__global uint2*)(to + PART_BYTES + at) = high_bytes;
    *(__global uint2*)(to + LOW_BYTES_AT + at) = low_bytes;
#else
    uint4 high, low;
    if (tf32)
      split_core_tf32(x[q], up, &high, &low);
    else
      split_core(x[q], up, &high, &low);
    to_high[PART_BYTES / 16] = low;
#endif
    to_high[0] = high;
  }

#if GUARD
  if (item == 0) {
    const int panels = own->is_a ? panels_of_a(p) : panels_of_b(p);
    directory_of(own->is_a ? p->packed_a : p->packed_b, panels * depths_of(p->k, tf32))[own->tile] = s->listed;
    if (s->listed != 0) atomic_add(p->count, s->listed);
  }
  if (item < s->listed) {
    int place = 0;  // sorted by row and k, so that sums do not depend on the order of work-items
    for (uint i = 0; i < s->listed; i++) place += s->list[i].x < s->list[item].x;
    ((__global uint2*)(to + LIST_AT))[place] = s->list[item];
  }
#endif
  return true;
}
