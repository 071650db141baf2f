// Split-k in two launches, the second: C = alpha*(sum of slices) + beta*C.
//   from[slice*m*n + i*n + j]    the slices of one matrix; the matrices of a batch follow one another
//   c[i*c_row + j*c_column]      m x n; not read when beta is 0
// A work-item adds up WIDTH columns of every PARTS-th slice. Then PARTS work-items add up their sums
// through local memory.
// Work-groups: matrices x (m x (n/WIDTH, rounded up) x PARTS / GROUP, rounded up), GROUP work-items each.
// Local: 4*GROUP*WIDTH bytes.
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#ifndef PARTS
#error "PARTS: work-items that share the slices of the same elements"
#endif
#ifndef WIDTH
#error "WIDTH: columns per work-item, one vector"
#endif
#ifndef ALIGNED
#error "ALIGNED: 1 if n is a multiple of WIDTH"
#endif
#define UNITS (GROUP / PARTS)  // vectors of C per work-group

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reduce(const int m, const int n, const int slices, const int4 counts, const float alpha, const float beta,
            __global const float* restrict from,
            __global float* restrict c, const long c_offset, const long c_row, const long c_column,
            const long4 c_strides GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  const int across = (n + WIDTH - 1) / WIDTH, groups = (m * across + UNITS - 1) / UNITS;
  const uint group = get_group_id(0), matrix = group / groups;
  const int item = get_local_id(0), part = item / UNITS;
  const int unit = group % groups * UNITS + item % UNITS, row = unit / across, column = unit % across * WIDTH;
  const bool whole = column + WIDTH <= n;
  const long size = (long)m * n;
  FLOAT(WIDTH) sum = (FLOAT(WIDTH))(0.0f);
  if (row < m) {
    from += matrix * slices * size + (long)row * n + column;
    c += c_offset + matrix_offset(matrix, counts, c_strides) + row * c_row + column * c_column;
    if (whole) {
#if PARTS > 1  // for CPUs, whose compilers vectorise the loop, the pragma gives a warning only
      #pragma unroll 4
#endif
      for (int slice = part; slice < slices; slice += PARTS)
#if ALIGNED
        sum += LOAD_ALIGNED(WIDTH, __global, from + slice * size);
#else
        sum += LOAD(WIDTH, from + slice * size);
#endif
    } else {
      float values[WIDTH];
      for (int j = 0; j < WIDTH; j++) {
        values[j] = 0.0f;
        if (j < n - column)
          for (int slice = part; slice < slices; slice += PARTS) values[j] += from[slice * size + j];
      }
      sum = LOAD(WIDTH, values);
    }
  }
#if PARTS > 1
  __local FLOAT(WIDTH) sums[GROUP];
  sums[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (part != 0) return;
  #pragma unroll
  for (int other = 1; other < PARTS; other++) sum += sums[other * UNITS + item];
#endif
  if (row >= m) return;
  sum *= alpha;
  STORE_RUN(WIDTH)(c, c_column, column, n, sum, beta);
}
