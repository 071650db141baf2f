// Measures the rate at which a device reads memory: each work-item adds up a share of a long array.
//   x[(g*first + i*stride)*WIDTH + j]    what work-item g adds up, for i < count, j < WIDTH
//   out[g]                               its sum, so that the loop has a result
// With first = count and stride = 1 a work-item reads contiguous memory, for CPUs. With first = 1 and stride = the
// number of work-items neighbours read neighbouring vectors, for GPUs.
// CHAINS loads are under way at once; count is a multiple of CHAINS.
// After: McCalpin, "Memory bandwidth and machine balance in current high performance computers", 1995.
#ifndef WIDTH
#error "WIDTH: floats per load"
#endif
#ifndef CHAINS
#error "CHAINS: loads that are under way at once"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void stream(const int count, const long first, const long stride, __global const float* restrict x,
            __global float* restrict out) {
  FLOAT(WIDTH) sum[CHAINS];
  #pragma unroll
  for (int j = 0; j < CHAINS; j++) sum[j] = (FLOAT(WIDTH))(0.0f);
  __global const float* p = x + get_global_id(0) * first * WIDTH;
  for (int i = 0; i < count; i += CHAINS) {
    #pragma unroll
    for (int j = 0; j < CHAINS; j++) sum[j] += LOAD(WIDTH, p + j * stride * WIDTH);
    p += CHAINS * stride * WIDTH;
  }
  float values[WIDTH], total = 0.0f;
  #pragma unroll
  for (int j = 1; j < CHAINS; j++) sum[0] += sum[j];
  STORE(WIDTH, sum[0], values);
  for (int j = 0; j < WIDTH; j++) total += values[j];
  out[get_global_id(0)] = total;
}
