// Copies a matrix into panels as pack.cl does, on devices whose hardware spreads work-items over lanes:
//   to[(panel*depth + p)*PANEL + r] = from[(panel*PANEL + r)*row + p*column], zeros beyond the matrix
// A block of CHUNK steps goes through local memory, so that neighbours read and write neighbours.
// Work-groups: matrices x panels x chunks with chunks = depth/CHUNK rounded up, of GROUP work-items.
// Local: CHUNK*(PANEL + 1) lanes.
#ifndef PANEL
#error "PANEL: rows of a panel"
#endif
#ifndef CHUNK
#error "CHUNK: steps over k of a work-group"
#endif
#ifndef GROUP
#error "GROUP: work-items of a work-group"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void exact_pack_groups(const int rows, const int columns, const int depth, const int4 counts,
                       __global const LOADED_TYPE* from, const long from_offset, const long from_row,
                       const long from_column, const long4 from_strides, __global LANE_TYPE* to) {
  __local LANE_TYPE block[CHUNK * (PANEL + 1)];
  const int panels = (rows + PANEL - 1) / PANEL, chunks = (depth + CHUNK - 1) / CHUNK;
  const uint group = get_group_id(0), matrix = group / (panels * chunks);
  const int panel = group / chunks % panels, begin = group % chunks * CHUNK, item = get_local_id(0);
  const int row_0 = panel * PANEL, count = min(PANEL, rows - row_0), steps = min(CHUNK, depth - begin);
  const bool goes_down = abs_diff(from_row, 0L) <= abs_diff(from_column, 0L);
  from += from_offset + matrix_offset(matrix, counts, from_strides);
  to += (((long)matrix * panels + panel) * depth + begin) * PANEL;
  for (int i = item; i < CHUNK * PANEL; i += GROUP) {
    const int r = goes_down ? i % PANEL : i / CHUNK, p = goes_down ? i / PANEL : i % CHUNK;
    LANE_TYPE lane = 0;
    if (r < count && (begin + p) * (long)WORD < columns)
      lane = lane_of(from, row_0 + r, begin + p, from_row, from_column, columns);
    block[p * (PANEL + 1) + r] = lane;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = item; i < steps * PANEL; i += GROUP) to[i] = block[i / PANEL * (PANEL + 1) + i % PANEL];
}
