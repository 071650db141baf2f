// Copies the upper triangle of each matrix to the lower one, for CPUs: c[j][i] = c[i][j] for i < j.
//   c[i*c_row + j*c_column]   n x n
// One work-item copies one square tile of SIDE rows, by way of private memory, so that reads and writes run along rows.
// Work-groups: matrices x tiles x tiles with tiles = n/SIDE rounded up; those of tiles above the diagonal have
// nothing to do.
#ifndef SIDE
#error "SIDE: rows and columns of a tile, a multiple of 16"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void mirror_tile(const int n, const int4 counts, __global float* c, const long c_offset, const long c_row,
                 const long c_column, const long4 c_strides) {
  const uint tiles = (n + SIDE - 1) / SIDE, group = get_group_id(0);
  const int row_0 = group / tiles % tiles * SIDE, column_0 = group % tiles * SIDE;  // of the lower triangle
  if (row_0 < column_0) return;
  c += c_offset + matrix_offset(group / (tiles * tiles), counts, c_strides);
  if (c_column == 1 && row_0 > column_0 && row_0 + SIDE <= n) {  // whole, and off the diagonal
    float tile[SIDE * SIDE];
    for (int i = 0; i < SIDE; ++i) {
      __global const float* from = c + (column_0 + i) * c_row + row_0;
      for (int j = 0; j < SIDE; j += 16) vstore16(vload16(0, from + j), 0, tile + i * SIDE + j);
    }
    for (int j = 0; j < SIDE; ++j)
      for (int i = 0; i < SIDE; i += 4) {
        const __private float* from = tile + i * SIDE + j;
        vstore4((float4)(from[0], from[SIDE], from[2 * SIDE], from[3 * SIDE]), 0, c + (row_0 + j) * c_row + column_0 + i);
      }
    return;
  }
  const int row_end = min(row_0 + SIDE, n), column_end = min(column_0 + SIDE, n);
  for (int i = column_0; i < column_end; ++i)
    for (int j = max(row_0, i + 1); j < row_end; ++j) c[j * c_row + i * c_column] = c[i * c_row + j * c_column];
}
