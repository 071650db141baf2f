// Splits both operands into the tiles of tensor_tile.cl, padded with zeros, in one launch.
//   a[row*a_row + p*a_column]     m x k, any strides;   b[column*b_row + p*b_column]     n x k, that is, B'
//   packed[(panel*depths + depth)*TILE_BYTES]     panel = row/TILE_ROWS, depth = p/TILE_K
// A row's TILE_K elements share the scale 2^(e - TOP), where 2^e <= the largest of them < 2^(e+1). All rows of a tile have
// that of the largest if they are near it and this leaves no element too small. The high part is an element over its
// scale, rounded to eleven bits; the low part the rest, rounded likewise.
//
// What that keeps, u = 2^-24: a low part is at most 2^-11 of its element and rounded to eleven bits, so that
// the two together are off by at most 2u of the element; or, where fp16 is subnormal, by 2^-25 over
// the scale, which for an element of 2^least and more over its scale is 2^(-1-least) u of it.
// With GUARD, the others - tiny beside their row's largest, huge, Inf, NaN - are zero in the split and go to the
// tile's list. Scales are kept between 2^-63 and 2^63, so that the product of two is a normal number.
//
// `count` grows by the listed elements (GUARD only): above `most`, another kernel makes the product. The TF32 kernels
// are the first to take over: they run where `count_before`, that of the halves, is above `most`.
// Work-groups: any number, 256 work-items each; they take turns at tiles of A, then of B.
#define OWN 4              // cores of a row that a work-item splits
#define ABREAST (8 / OWN)  // work-items for each row
#define ITEMS (ABREAST * TILE_ROWS)
#define WARPS (ITEMS / 32)
#define TOP (TF32 ? 30 : 14)
#define HUGE_BITS ((uint)(127 + TOP + 64) << 23)
#define LEAST_E (127 + TOP - 63)  // biased
// How many exponents the largest elements of rows that share a scale may differ by: tf32 has them all.
#define NEAR (TF32 ? 255 : 6)
#define TINY(e) ((uint)((e) - TOP + least) << 23)  // from here on an element is large enough

#if TF32
static inline uint eleven_bits(float x) {
  uint near;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near) : "f"(x));
  return near;
}

static inline void split_core(const float* x, float up, uint4* high, uint4* low) {
  high->x = eleven_bits(x[0] * up), low->x = eleven_bits(x[0] * up - as_float(high->x));
  high->y = eleven_bits(x[1] * up), low->y = eleven_bits(x[1] * up - as_float(high->y));
  high->z = eleven_bits(x[2] * up), low->z = eleven_bits(x[2] * up - as_float(high->z));
  high->w = eleven_bits(x[3] * up), low->w = eleven_bits(x[3] * up - as_float(high->w));
}
#else
static inline uint halves(float low, float high) {
  uint both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

static inline float2 floats(uint both) {
  float2 two;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(two.x), "=f"(two.y) : "r"(both));
  return two;
}

static inline uint split_two(float x, float y, uint* low) {
  const uint high = halves(x, y);
  const float2 near = floats(high);
  *low = halves(x - near.x, y - near.y);
  return high;
}

static inline void split_core(const float* x, float up, uint4* high, uint4* low) {
  uint part;
  high->x = split_two(x[0] * up, x[1] * up, &part), low->x = part;
  high->y = split_two(x[2] * up, x[3] * up, &part), low->y = part;
  high->z = split_two(x[4] * up, x[5] * up, &part), low->z = part;
  high->w = split_two(x[6] * up, x[7] * up, &part), low->w = part;
}
#endif

// Whether two parts cannot hold an element.
static inline bool is_apart(float x, uint tiny) {
  const uint size = as_uint(x) & 0x7fffffff;
  return size - 1 < tiny - 1 || size >= HUGE_BITS;
}

static inline uint largest_of_warp(uint x) {
  uint largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(x));
  return largest;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_pack(const int m, const int n, const int k, const int least, const int most,
                 __global const float* restrict a, const long a_offset, const long a_row, const long a_column,
                 __global const float* restrict b, const long b_offset, const long b_row, const long b_column,
                 __global uchar* restrict packed_a, __global uchar* restrict packed_b,
                 __global uint* restrict count, __global const uint* restrict count_before) {
  __local uint largest[ABREAST * TILE_ROWS], warp_largest[WARPS], warp_least[WARPS], warp_smallest[WARPS];
  const int item = get_local_id(0), depths = (k + TILE_K - 1) / TILE_K;
  const int tiles_a = (m + TILE_ROWS - 1) / TILE_ROWS * depths, tiles_b = (n + TILE_ROWS - 1) / TILE_ROWS * depths;
#if GUARD
  __local uint listed, before;
  __local uint2 list[LIST_MOST];
#endif
#if TF32 && GUARD
  if (*count_before <= most) return;
#endif
  for (int group = get_group_id(0); group < tiles_a + tiles_b; group += get_num_groups(0)) {
    const bool is_a = group < tiles_a;
    const int tile = is_a ? group : group - tiles_a, rows = is_a ? m : n;
    const long row_stride = is_a ? a_row : b_row, column_stride = is_a ? a_column : b_column;
    const int row_0 = tile / depths * TILE_ROWS, k_0 = tile % depths * TILE_K;
    __global const float* from = (is_a ? a + a_offset : b + b_offset) + row_0 * row_stride + k_0 * column_stride;
    __global uchar* to = (is_a ? packed_a : packed_b) + (long)tile * TILE_BYTES;

#if GUARD
    const uint so_far = item == 0 ? *(volatile __global const uint*)count : 0;  // early, as this takes time
#endif

    // A work-item splits cores of a row that are ABREAST apart. Neighbours run along the source's shorter stride.
    const bool along_k = column_stride * column_stride <= row_stride * row_stride;
    const int row = along_k ? item / (16 * ABREAST) * 16 + item % 16 : item % TILE_ROWS;
    const int first = along_k ? item / 16 % ABREAST : item / TILE_ROWS;  // core
    const int rows_here = rows - row_0, depth_here = k - k_0;
    float x[OWN][CORE];
    from += row * row_stride;
    const bool whole = rows_here >= TILE_ROWS && depth_here >= TILE_K;
    if (whole && column_stride == 1 && row_stride % 4 == 0 && ((ulong)from & 15) == 0) {
      #pragma unroll
      for (int q = 0; q < OWN; q++) {
        __global const float4* vectors = (__global const float4*)(from + (first + ABREAST * q) * CORE);
        #pragma unroll
        for (int i = 0; i < CORE / 4; i++) {
          const float4 v = vectors[i];
          x[q][4 * i] = v.x, x[q][4 * i + 1] = v.y, x[q][4 * i + 2] = v.z, x[q][4 * i + 3] = v.w;
        }
      }
    } else {
      const int depth_mine = row < rows_here ? depth_here : 0;
      __global const float* next = from + first * CORE * column_stride;
      #pragma unroll
      for (int q = 0; q < OWN; q++) {
        #pragma unroll
        for (int i = 0; i < CORE; i++) {
          x[q][i] = (first + ABREAST * q) * CORE + i < depth_mine ? *next : 0.0f;
          next += column_stride;
        }
        next += (ABREAST - 1) * CORE * column_stride;
      }
    }

    uint size_here = 0, smallest = -1;  // smallest: of those that are not zero, minus one
    #pragma unroll
    for (int q = 0; q < OWN; q++)
      #pragma unroll
      for (int i = 0; i < CORE; i++) {
        const uint size = as_uint(x[q][i]) & 0x7fffffff;
        size_here = max(size_here, size);
        smallest = min(smallest, size - 1);
      }
    const bool huge = size_here >= HUGE_BITS;
    if (huge) {
      size_here = 0;
      #pragma unroll
      for (int q = 0; q < OWN; q++)
        #pragma unroll
        for (int i = 0; i < CORE; i++) {
          const uint size = as_uint(x[q][i]) & 0x7fffffff;
          size_here = max(size_here, size < HUGE_BITS ? size : 0);
        }
      smallest = 0;
    }
    largest[first * TILE_ROWS + row] = size_here;
    const uint largest_here = largest_of_warp(size_here), smallest_here = ~largest_of_warp(~smallest);
    const uint least_here = ~largest_of_warp(size_here == 0 ? 0 : ~size_here);  // of the largest that are not zero
    if (item % 32 == 0) {
      warp_largest[item / 32] = largest_here;
      warp_least[item / 32] = least_here;
      warp_smallest[item / 32] = smallest_here;
    }
#if GUARD
    if (item == 0) {
      listed = 0;
      before = so_far;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (before > most) break;  // nobody will read the tiles
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    uint row_largest = 0;
    #pragma unroll
    for (int i = 0; i < ABREAST; i++) row_largest = max(row_largest, largest[i * TILE_ROWS + row]);
    const uint tile_largest = largest_of_warp(warp_largest[item % WARPS]);
    const uint tile_least = ~largest_of_warp(~warp_least[item % WARPS]);
    const uint tile_smallest = ~largest_of_warp(~warp_smallest[item % WARPS]);
    const int tile_e = max((int)(tile_largest >> 23), LEAST_E);  // biased, as all here
    const bool common = tile_smallest >= TINY(tile_e) - 1 && (int)(tile_least >> 23) >= tile_e - NEAR;
    const int e = common ? tile_e : max((int)(row_largest >> 23), LEAST_E);
    const float scale = as_float((uint)(e - TOP) << 23);
    if (first == 0) ((__global float*)(to + SCALES_AT))[row] = scale;
    if (item == 0) *(__global float*)(to + COMMON_AT) = common ? scale : 0.0f;

#if GUARD
    if ((huge || smallest < TINY(e) - 1) && *(volatile __local uint*)&listed <= LIST_MOST) {
      uint here = 0;
      #pragma unroll
      for (int q = 0; q < OWN; q++)
        #pragma unroll
        for (int i = 0; i < CORE; i++) here += is_apart(x[q][i], TINY(e));
      uint place = atomic_add(&listed, here);
      if (place + here <= LIST_MOST) {
        #pragma unroll
        for (int q = 0; q < OWN; q++)
          #pragma unroll
          for (int i = 0; i < CORE; i++)
            if (is_apart(x[q][i], TINY(e))) {
              uint2 entry;
              entry.x = (uint)(row | ((first + ABREAST * q) * CORE + i) << 8);
              entry.y = as_uint(x[q][i]);
              list[place++] = entry;
              x[q][i] = 0.0f;
            }
      }
    }
#endif

#if GUARD
    barrier(CLK_LOCAL_MEM_FENCE);
    if (listed > LIST_MOST) {  // nobody will read the tiles
      if (item == 0) atomic_max(count, OVERFULL);
      break;
    }
#endif
    const float up = as_float((uint)(127 + 127 + TOP - e) << 23);
    const int slot = slot_of(row);
    #pragma unroll
    for (int q = 0; q < OWN; q++) {
      uint4 high, low;
      split_core(x[q], up, &high, &low);
      __global uint4* core = (__global uint4*)(to + ((first + ABREAST * q) * TILE_ROWS + slot) * 16);
      core[0] = high;
      core[PART_BYTES / 16] = low;
    }

#if GUARD
    if (item == 0) {
      directory_of(is_a ? packed_a : packed_b, is_a ? tiles_a : tiles_b)[tile] = listed;
      if (listed != 0) atomic_add(count, listed);
    }
    if (item < listed) {
      int place = 0;  // in the order of rows and k: sums do not depend on who came first
      for (uint i = 0; i < listed; i++) place += list[i].x < list[item].x;
      ((__global uint2*)(to + LIST_AT))[place] = list[item];
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);  // local memory is free for the next tile
  }
}
