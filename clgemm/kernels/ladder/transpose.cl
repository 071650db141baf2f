// Transposes a matrix into another buffer, for rungs 5 to 10, 12 to 16 and 22.
//   from[j*rows + i]       rows x columns, column-major
//   to[i*columns + j]      columns x rows, column-major
// A work-group transposes one square tile in local memory. So adjacent work-items read adjacent elements
// of `from` and write adjacent elements of `to`. Without local memory, one of the two would be strided.
// Work-group: (TRANSPOSE, TRANSPOSE). Local memory: 4*TRANSPOSE*(TRANSPOSE + 1) bytes.
// Limits: none on rows and columns.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 5.
#ifndef TRANSPOSE
#error "TRANSPOSE: side of the square that one work-group transposes"
#endif

__kernel __attribute__((reqd_work_group_size(TRANSPOSE, TRANSPOSE, 1)))
void transpose(const int rows, const int columns, __global const float* restrict from,
               __global float* restrict to) {
  // The extra column puts the elements of a row into different banks of local memory.
  __local float tile[TRANSPOSE][TRANSPOSE + 1];
  const int x = get_local_id(0), y = get_local_id(1);
  const int row_0 = get_group_id(0) * TRANSPOSE, column_0 = get_group_id(1) * TRANSPOSE;

  if (row_0 + x < rows && column_0 + y < columns)
    tile[y][x] = from[(column_0 + y) * rows + row_0 + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (row_0 + y < rows && column_0 + x < columns)
    to[(row_0 + y) * columns + column_0 + x] = tile[x][y];
}
