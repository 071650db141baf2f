// C = alpha*A*B + beta*C, an element of C for each work-item. The family of a test.
//   a[i*a_row + p*a_column], b[p*b_row + j*b_column], c[i*c_row + j*c_column], not read when beta is 0
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void toy_product(const int m, const int n, const int k, const float alpha, const float beta,
            __global const float* restrict a, const long a_offset, const long a_row, const long a_column,
            __global const float* restrict b, const long b_offset, const long b_row, const long b_column,
            __global float* restrict c, const long c_offset, const long c_row, const long c_column GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  const int element = get_global_id(0), i = element / n, j = element % n;
  if (i >= m) return;
  float sum = 0.0f;
  for (int p = 0; p < k; p++)
    sum += a[a_offset + i * a_row + p * a_column] * b[b_offset + p * b_row + j * b_column];
  __global float* place = c + c_offset + i * c_row + j * c_column;
  *place = alpha * sum + (beta == 0.0f ? 0.0f : beta * *place);
}
