// A warp stores 16 rows x 32 columns of C from its accumulators, with alpha and beta, to a C of any strides.
// A work-item has 16 of the elements. Bit 3 of an element's index selects one half of the columns, bits 2 and 0
// add 2 and 1 to the column, and bit 1 adds 2 to the row: see slot_of in tensor_core/tile.cl.
#define CORNER_PITCH 33
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

// For any C: elements change places in local memory, so that the warp stores runs of 32 columns.
static inline void store_runs(const float* own, const float alpha, const float beta, __global float* c, const long c_row,
                              const long c_column, const int rows, const int columns, __local float* corner) {
  const int lane = get_local_id(0) % 32;
  #pragma unroll
  for (int i = 0; i < 16; i++)
    corner[(own_row() + (i & 2)) * CORNER_PITCH + (i & 8) * 2 + own_column() + (i & 4) / 2 + (i & 1)] = alpha * own[i];
  warp_barrier();
  for (int row = 0; row < min(16, rows); row++)
    if (lane < columns) store_element(c + row * c_row + lane * c_column, corner[row * CORNER_PITCH + lane], beta);
  warp_barrier();
}
