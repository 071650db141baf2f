// Copies a matrix into panels of PANEL rows, converted to lanes and padded with zeros:
//   to[(panel*depth + p)*PANEL + r] = from[(panel*PANEL + r)*row + p*column]
// With LANE 0, a word has 32 steps of k, a bit each: whether the element is not zero.
//   rows, columns   of the matrix;  depth: of the panels, columns or words of 32
// Work-groups: matrices x panels x chunks with chunks = depth/CHUNK rounded up, of one work-item each.
#ifndef PANEL
#error "PANEL: rows of a panel"
#endif
#ifndef CHUNK
#error "CHUNK: steps over k that a work-item copies"
#endif
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void exact_pack(const int rows, const int columns, const int depth, const int4 counts,
            __global const LOADED_TYPE* from, const long from_offset, const long from_row, const long from_column,
            const long4 from_strides, __global LANE_TYPE* to) {
  const int panels = (rows + PANEL - 1) / PANEL, chunks = (depth + CHUNK - 1) / CHUNK;
  const uint group = get_group_id(0), matrix = group / (panels * chunks);
  const int panel = group / chunks % panels, begin = group % chunks * CHUNK, end = min(begin + CHUNK, depth);
  const int row_0 = panel * PANEL, count = min(PANEL, rows - row_0);
  from += from_offset + matrix_offset(matrix, counts, from_strides);
  to += ((long)matrix * panels + panel) * depth * PANEL;
  for (int p = begin; p < end; p++) {
    __global LANE_TYPE* const step = to + (long)p * PANEL;
    if (from_row == 1)  // the compiler loads vectors
      for (int r = 0; r < count; r++) step[r] = lane_of(from, row_0 + r, p, 1, from_column, columns);
    else
      for (int r = 0; r < count; r++) step[r] = lane_of(from, row_0 + r, p, from_row, from_column, columns);
    for (int r = count; r < PANEL; r++) step[r] = 0;
  }
}
