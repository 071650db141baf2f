// C = alpha*(sum of slices) + beta*C: adds up the results of a product whose k was cut into slices.
//   from[slice*m*n + i*n + j]    the slices of one matrix; matrices one behind the other
//   c[i*c_row + j*c_column]      m x n; not read when beta is 0
// Work-groups: matrices x m x (n/(GROUP*WIDTH), rounded up), GROUP work-items of WIDTH columns each.
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#ifndef WIDTH
#error "WIDTH: columns per work-item, one vector"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reduce(const int m, const int n, const int slices, const int4 counts, const float alpha, const float beta,
            __global const float* restrict from,
            __global float* restrict c, const long c_offset, const long c_row, const long c_column,
            const long4 c_strides) {
  const int parts = (n + GROUP * WIDTH - 1) / (GROUP * WIDTH);
  const uint group = get_group_id(0), row = group / parts % m, matrix = group / parts / m;
  const int column = (group % parts * GROUP + get_local_id(0)) * WIDTH;
  if (column >= n) return;
  const long size = (long)m * n;
  from += matrix * slices * size + (long)row * n + column;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row * c_row + column * c_column;
  if (column + WIDTH <= n && c_column == 1) {
    FLOAT(WIDTH) sum = LOAD(WIDTH, from);
    for (int slice = 1; slice < slices; slice++) sum += LOAD(WIDTH, from + slice * size);
    sum *= alpha;
    if (beta != 0.0f) sum += beta * LOAD(WIDTH, c);
    STORE(WIDTH, sum, c);
  } else {
    for (int j = 0; j < min(WIDTH, n - column); j++) {
      float sum = from[j];
      for (int slice = 1; slice < slices; slice++) sum += from[slice * size + j];
      sum *= alpha;
      c[j * c_column] = beta == 0.0f ? sum : sum + beta * c[j * c_column];
    }
  }
}
