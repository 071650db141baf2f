// Packs a matrix of any strides into zero-padded panels, for GPUs: it transposes through local memory.
//   from[row*row_stride + column*column_stride]            rows x columns
//   to[(panel*padded_columns + column)*PANEL + row%PANEL]  panel = row/PANEL; zero where there is no element
// Work-groups: matrices x panels x (padded_columns/DEPTH, rounded up), GROUP work-items each.
// Local: 4*DEPTH*(PANEL|1) bytes.
// One launch pads and transposes; the tutorial takes two. Reads run along the source's rows or columns,
// whichever are contiguous, and writes along the panel, so that both are coalesced.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernels 5 and 10.
#ifndef PANEL
#error "PANEL: rows of a panel"
#endif
#ifndef DEPTH
#error "DEPTH: columns that one work-group copies"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#define PITCH (PANEL | 1)  // odd: a column of the tile lies in different banks of local memory

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void pack(const int rows, const int columns, const int padded_columns, const int4 counts,
          __global const float* restrict from, const long from_offset, const long row_stride,
          const long column_stride, const long4 from_strides,
          __global float* restrict to, const long to_offset GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  const int depths = (padded_columns + DEPTH - 1) / DEPTH, panels = (rows + PANEL - 1) / PANEL;
  const uint group = get_group_id(0), block = group % (depths * panels), matrix = group / (depths * panels);
  const int panel = block / depths, column_0 = block % depths * DEPTH, row_0 = panel * PANEL;
  const int item = get_local_id(0);

  from += from_offset + matrix_offset(matrix, counts, from_strides)
        + row_0 * row_stride + column_0 * column_stride;
  to += to_offset + (((long)matrix * panels + panel) * padded_columns + column_0) * PANEL;
  const int rows_here = min(PANEL, rows - row_0), columns_here = min(DEPTH, columns - column_0);
  const int padded_here = min(DEPTH, padded_columns - column_0);

  __local float tile[DEPTH * PITCH];
  if (row_stride == 1) {  // columns are contiguous, as in a panel: copy
    for (int i = item; i < padded_here * PANEL; i += GROUP) {
      const int row = i % PANEL, column = i / PANEL;
      to[i] = row < rows_here && column < columns_here ? from[row + column * column_stride] : 0.0f;
    }
  } else {  // transpose
    for (int i = item; i < DEPTH * PANEL; i += GROUP) {
      const int row = i / DEPTH, column = i % DEPTH;
      tile[column * PITCH + row] = row < rows_here && column < columns_here
          ? from[row * row_stride + column * column_stride] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < padded_here * PANEL; i += GROUP)
      to[i] = tile[i / PANEL * PITCH + i % PANEL];
  }
}
