// Adds blocks of a symmetric product to triangles of C, whose other triangle stays:
// c[i][j] = p[i][j] + beta*c[i][j], and c[j][i] = p[i][j] + beta*c[j][i], for the i <= j of the block.
//   p[i*columns + j]                            rows x columns, with the diagonal from its first element on
//   c[c_offset + i*c_row + j*c_column]
// Work-groups: tiles of SIDE rows and columns, row by row; those below the diagonal have nothing to do.
#ifndef SIDE
#error "SIDE: rows and columns of a tile"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#ifndef UPPER
#error "UPPER: whether C's upper triangle is updated"
#endif
#ifndef LOWER
#error "LOWER: whether C's lower triangle is updated"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void update_triangles(const int rows, const int columns, const float beta, __global const float* p, __global float* c,
                      const long c_offset, const long c_row, const long c_column) {
  const uint tiles = (columns + SIDE - 1) / SIDE, group = get_group_id(0);
  const int row_0 = group / tiles * SIDE, column_0 = group % tiles * SIDE;
  if (column_0 + SIDE <= row_0) return;
  c += c_offset;
#if UPPER
  for (int e = get_local_id(0); e < SIDE * SIDE; e += GROUP) {
    const int i = row_0 + e / SIDE, j = column_0 + e % SIDE;
    if (i < rows && j < columns && i <= j) store_element(c + i * c_row + j * c_column, p[(long)i * columns + j], beta);
  }
#endif
#if LOWER
  for (int e = get_local_id(0); e < SIDE * SIDE; e += GROUP) {  // rows of C's lower triangle are columns of p
    const int i = row_0 + e % SIDE, j = column_0 + e / SIDE;
    if (i < rows && j < columns && i + UPPER <= j)
      store_element(c + j * c_row + i * c_column, p[(long)i * columns + j], beta);
  }
#endif
}
