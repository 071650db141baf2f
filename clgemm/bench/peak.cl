// Measures a device's peak rate of multiply-adds, by chains of x = x*factor + term in registers.
//   out[item]    the sum of the work-item's chains, so that the loop has a result
// A work-item has CHAINS vectors of WIDTH floats: enough to hide an instruction's latency, few enough for the
// register file. The compiler cannot fold or merge the chains: factor and term come at run time, and each element
// starts at another value. With factor below 1 the chains converge to term / (1 - factor), away from subnormal
// numbers and from infinity.
// Operations: 2 * steps * CHAINS * WIDTH per work-item.
#ifndef WIDTH
#error "WIDTH: floats per vector"
#endif
#ifndef CHAINS
#error "CHAINS: vectors that are independent of one another"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void peak(const int steps, const float factor, const float term, __global float* restrict out) {
  FLOAT(WIDTH) sum[CHAINS];
  #pragma unroll
  for (int i = 0; i < CHAINS; i++) sum[i] = (FLOAT(WIDTH))((float)(get_global_id(0) % 61 + i));
  for (int step = 0; step < steps; step++)
    #pragma unroll
    for (int i = 0; i < CHAINS; i++) sum[i] = MULTIPLY_ADD(sum[i], (FLOAT(WIDTH))(factor), (FLOAT(WIDTH))(term));
  float values[WIDTH], total = 0.0f;
  #pragma unroll
  for (int i = 1; i < CHAINS; i++) sum[0] += sum[i];
  STORE(WIDTH, sum[0], values);
  for (int j = 0; j < WIDTH; j++) total += values[j];
  out[get_global_id(0)] = total;
}
