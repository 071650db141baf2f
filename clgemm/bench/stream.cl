// Measures the device's memory bandwidth: each work-item adds up its part of a long array.
//   work-item g adds x[(g*first + i*stride)*WIDTH ... + WIDTH - 1] for i = 0 ... count - 1
//   out[g] is one float per work-item, so that the compiler keeps the loop.
// first = count, stride = 1: each work-item reads its own contiguous part, which is fast on CPUs.
// first = 1, stride = work-items: adjacent work-items read adjacent elements, which is fast on GPUs.
// CHAINS loads are in flight at a time; count is a multiple of CHAINS.
// After: McCalpin, "Memory bandwidth and machine balance in current high performance computers", 1995.
#ifndef WIDTH
#error "WIDTH: floats per load"
#endif
#ifndef CHAINS
#error "CHAINS: independent loads per work-item"
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
