// Tells for each work-group whether all elements that it reads are finite.
//   from[from_offset + i]          `count` elements, one after the other
//   flags[flags_offset + group]    1 if the group's elements are finite, else 0
// Each work-group has a run of vectors, which its work-items read in turns. Both arrays may be parts of one
// buffer. Local: 4 bytes.
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#ifndef WIDTH
#error "WIDTH: elements that a work-item reads at once, one vector"
#endif
#define EXPONENT 0x7f800000u  // Inf and NaN have all of these bits, and no other number has
#define UINT(width) JOIN(uint, width)
#define AS_UINT(width, x) JOIN(as_uint, width)(x)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void finite(const long count, __global const float* from, const long from_offset,
            __global float* flags, const long flags_offset) {
  __local uint others;
  const int item = get_local_id(0);
  const long group = get_group_id(0), groups = get_num_groups(0), vectors = count / WIDTH;
  const long run = (vectors + groups - 1) / groups, end = min((group + 1) * run, vectors);
  if (item == 0) others = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  from += from_offset;
  UINT(WIDTH) most = 0;
  for (long i = group * run + item; i < end; i += GROUP)
    most = max(most, AS_UINT(WIDTH, LOAD(WIDTH, from + i * WIDTH)) & EXPONENT);
  uint found = any(most == EXPONENT);
  if (group == groups - 1)
    for (long i = vectors * WIDTH + item; i < count; i += GROUP)
      found |= (as_uint(from[i]) & EXPONENT) == EXPONENT;
  if (found) atomic_or(&others, 1u);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) flags[flags_offset + group] = others ? 0.0f : 1.0f;
}
