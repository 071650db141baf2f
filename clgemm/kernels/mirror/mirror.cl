// Copies the upper triangle of each matrix to the lower one: c[j][i] = c[i][j] for i < j.
//   c[i*c_row + j*c_column]   n x n
// Each work-group copies one square tile of SIDE rows, through local memory, so that both reads and writes
// run along rows. Work-groups: matrices x tiles x tiles with tiles = n/SIDE rounded up, SIDE*ROWS work-items each;
// those of tiles above the diagonal have nothing to do. Local: ELEMENT_BYTES*SIDE*(SIDE+1) bytes.
#ifndef SIDE
#error "SIDE: rows and columns of a tile"
#endif
#ifndef ROWS
#error "ROWS: rows of a tile that a work-group copies at once"
#endif
#ifndef ELEMENT_BYTES
#error "ELEMENT_BYTES: of an element: 1, 2, 4, 8 or 16"
#endif
#if ELEMENT_BYTES == 1
#define ELEMENT uchar
#elif ELEMENT_BYTES == 2
#define ELEMENT ushort
#elif ELEMENT_BYTES == 4
#define ELEMENT uint
#elif ELEMENT_BYTES == 8
#define ELEMENT ulong
#else
#define ELEMENT ulong2
#endif

__kernel __attribute__((reqd_work_group_size(SIDE * ROWS, 1, 1)))
void mirror(const int n, const int4 counts, __global ELEMENT* c, const long c_offset, const long c_row,
            const long c_column, const long4 c_strides) {
  __local ELEMENT tile[SIDE][SIDE + 1];
  const uint tiles = (n + SIDE - 1) / SIDE, group = get_group_id(0);
  const int row_0 = group / tiles % tiles * SIDE, column_0 = group % tiles * SIDE;  // of the lower triangle
  const int x = get_local_id(0) % SIDE, y_0 = get_local_id(0) / SIDE;
  if (row_0 < column_0) return;
  c += c_offset + matrix_offset(group / (tiles * tiles), counts, c_strides);
  for (int y = y_0; y < SIDE; y += ROWS)  // only what is above the diagonal: the rest may not have been computed
    if (row_0 + x < n && column_0 + y < row_0 + x) tile[y][x] = c[(column_0 + y) * c_row + (row_0 + x) * c_column];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int y = y_0; y < SIDE; y += ROWS)
    if (row_0 + y < n && column_0 + x < row_0 + y)
      c[(row_0 + y) * c_row + (column_0 + x) * c_column] = tile[x][y];
}
