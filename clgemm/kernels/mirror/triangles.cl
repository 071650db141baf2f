// Adds a block of rows of a symmetric product to one triangle of C, or to both:
// c[i][j] = p[i][j] + beta*c[i][j], and for both c[j][i] = p[i][j] + beta*c[j][i], where i and j are in the triangle.
//   p[i*columns + j]                            rows x columns
//   c[c_offset + i*c_row + j*c_column]
// The upper triangle, or both: the diagonal begins with the block's first element. The lower one: it ends with its
// last element. Work-groups: tiles of SIDE rows and columns, row by row; those outside have nothing to do.
#ifndef SIDE
#error "SIDE: rows and columns of a tile"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group, a power of two"
#endif
#ifndef UPPER
#error "UPPER: whether C's upper triangle is updated"
#endif
#ifndef LOWER
#error "LOWER: whether C's lower triangle is updated"
#endif
#define ALONG (GROUP < SIDE ? GROUP : SIDE)  // work-items along a row of C

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void update_triangles(const int rows, const int columns, const float beta, __global const float* restrict p,
                      __global float* restrict c, const long c_offset, const long c_row, const long c_column) {
  const uint tiles = (columns + SIDE - 1) / SIDE, group = get_group_id(0);
  const int row_0 = group / tiles * SIDE, column_0 = group % tiles * SIDE;
  const int row_end = min(row_0 + SIDE, rows), column_end = min(column_0 + SIDE, columns);
  const int x = get_local_id(0) % ALONG, y = get_local_id(0) / ALONG;
  c += c_offset;
  for (int i = row_0 + y; i < row_end; i += GROUP / ALONG) {
    const int begin = UPPER ? max(column_0, i / ALONG * ALONG) : column_0;
    const int end = UPPER ? column_end : min(column_end, i + columns - rows + 1);
    for (int j = begin + x; j < end; j += ALONG)
      if (!UPPER || i <= j) store_element(c + i * c_row + j * c_column, p[(long)i * columns + j], beta);
  }
#if UPPER && LOWER
  for (int j = column_0 + y; j < column_end; j += GROUP / ALONG)
    for (int i = row_0 + x; i < min(row_end, j); i += ALONG)
      store_element(c + j * c_row + i * c_column, p[(long)i * columns + j], beta);
#endif
}
