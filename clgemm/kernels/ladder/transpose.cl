// The supporting kernel of rungs 5 to 10: a transposed copy of a matrix.
//   from[j*rows + i]       rows x columns, column-major
//   to[i*columns + j]      columns x rows, column-major
// A work-group turns one square tile in local memory, so that it reads along `from`'s columns and
// writes along `to`'s; straight from one to the other, either would jump from address to address.
// Work-group: (TRANSPOSE, TRANSPOSE). Local memory: 4*TRANSPOSE*(TRANSPOSE + 1) bytes.
// Limits: none, whatever rows and columns.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 5.
#ifndef TRANSPOSE
#error "TRANSPOSE: side of the square that one work-group transposes"
#endif

__kernel __attribute__((reqd_work_group_size(TRANSPOSE, TRANSPOSE, 1)))
void transpose(const int rows, const int columns, __global const float* restrict from,
               __global float* restrict to) {
  // The extra column keeps the elements of a row from falling into one bank of local memory.
  __local float tile[TRANSPOSE][TRANSPOSE + 1];
  const int x = get_local_id(0), y = get_local_id(1);
  const int row_0 = get_group_id(0) * TRANSPOSE, column_0 = get_group_id(1) * TRANSPOSE;

  if (row_0 + x < rows && column_0 + y < columns)
    tile[y][x] = from[(column_0 + y) * rows + row_0 + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (row_0 + y < rows && column_0 + x < columns)
    to[(row_0 + y) * columns + column_0 + x] = tile[x][y];
}
