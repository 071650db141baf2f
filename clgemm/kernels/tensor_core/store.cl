// A warp stores 16 rows x 32 columns of C from its accumulators, with alpha and beta, to a C of any strides.
// A work-item has 16 of the elements. Bit 3 of an element's index selects one half of the columns, bits 2 and 0
// add 2 and 1 to the column, and bit 1 adds 2 to the row: see slot_of in tensor_core/tile.cl.
#define BLOCK 8  // floats that the memory writes together
#define CORNER_PITCH 48  // floats, so that no two work-items need the same bank of local memory at once
#define CORNER (16 * CORNER_PITCH)  // floats of local memory for each warp

// The first row and the first column that this work-item has, of each 16.
static inline int own_row(void) { return get_local_id(0) % 32 / 8 * 4 + get_local_id(0) / 4 % 2; }
static inline int own_column(void) { return get_local_id(0) % 4 * 4; }

// For whole, aligned vectors along the rows of C.
static inline void store_vectors(const float* own, const float alpha, const float beta, __global float* c, const long c_row,
                                 const int rows) {
  #pragma unroll
  for (int r = 0; r < 2; r++)
    if (own_row() + 2 * r < rows)
      #pragma unroll
      for (int side = 0; side < 2; side++) {
        __global float4* element = (__global float4*)(c + (own_row() + 2 * r) * c_row + side * 16 + own_column());
        const float* v = own + side * 8 + 2 * r;
        float4 result;
        result.x = alpha * v[0], result.y = alpha * v[1], result.z = alpha * v[4], result.w = alpha * v[5];
        // Not by STORE_ALIGNED, which makes NVIDIA's compiler repeat the products with alpha in both branches.
        if (beta != 0.0f) {
          const float4 old = *element;
          result.x += beta * old.x, result.y += beta * old.y, result.z += beta * old.z, result.w += beta * old.w;
        }
        *element = result;
      }
}

// For any C: elements change places in local memory, so that the warp stores runs of 32 columns, `count` of them side by
// side. Rows of C may begin anywhere. A run begins up to BLOCK-1 columns earlier in some rows, so that it is made of whole
// blocks of memory, and work-items store aligned vectors. What a run leaves of its last block, the next one stores.
static inline void store_runs(const float* own, const int count, const float alpha, const float beta, __global float* c,
                              const long c_row, const long c_column, const int rows, const int columns,
                              __local float* corner) {
  const int lane = get_local_id(0) % 32, behind = lane % 8 * 4, end = min(columns, count * 32);
  __local float4* last = (__local float4*)(corner + lane / 2 * CORNER_PITCH + lane % 2 * 4);
  #pragma unroll
  for (int run = 0; run <= count; run++) {
    #pragma unroll
    for (int r = 0; r < 2 && run < count; r++)
      #pragma unroll
      for (int side = 0; side < 2; side++) {
        const float* v = own + run * 16 + side * 8 + 2 * r;
        *(__local float4*)(corner + (own_row() + 2 * r) * CORNER_PITCH + BLOCK + side * 16 + own_column()) =
            (float4)(alpha * v[0], alpha * v[1], alpha * v[4], alpha * v[5]);
      }
    warp_barrier();
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = i * 4 + lane / 8;
      __global float* first = c + row * c_row;
      const int earlier = c_column == 1 ? (int)((ulong)first / sizeof(float)) & (BLOCK - 1) : 0;
      const int column = run * 32 + behind - earlier;
      __local const float* from = corner + row * CORNER_PITCH + BLOCK + behind - earlier;
      if (row >= rows) continue;
      if (c_column == 1 && column >= 0 && column + 4 <= end) {
        __global float4* element = (__global float4*)(first + column);
        float4 result = (float4)(from[0], from[1], from[2], from[3]);
        if (beta != 0.0f) result += beta * *element;
        *element = result;
      } else {
        for (int j = 0; j < 4; j++)
          if (column + j >= 0 && column + j < end) store_element(first + (column + j) * c_column, from[j], beta);
      }
    }
    const float4 left = last[32 / 4];
    warp_barrier();
    if (run < count) *last = left;
  }
}
