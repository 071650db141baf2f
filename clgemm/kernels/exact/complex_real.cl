// Writes a complex matrix as a real one, so that a product of real matrices is that of complex ones: of C as it lies, m x 2n
// with real and imaginary parts by turns; of A likewise, m x 2k; and of B, 2k x 2n, with blocks of
//     re  im
//    -im  re
// The result lies as the matrix does: its rows one after the other if IS_ROWS, otherwise its columns.
//   major, minor   of the matrix: its rows and columns, or its columns and rows
// Work-groups: major x minor/GROUP, rounded up, of GROUP work-items.
#ifndef IS_B
#error "IS_B: whether it is B"
#endif
#ifndef IS_ROWS
#error "IS_ROWS: whether rows follow one another, or columns"
#endif
#ifndef GROUP
#error "GROUP: work-items of a work-group"
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void complex_real(const int major, const int minor, __global const float2* from, const long from_offset,
                  const long from_major, const long from_minor, __global float* to) {
  const int chunks = (minor + GROUP - 1) / GROUP;
  const int i = get_group_id(0) / chunks, j = get_group_id(0) % chunks * GROUP + get_local_id(0);
  if (i >= major || j >= minor) return;
  const float2 x = from[from_offset + i * from_major + j * from_minor];
#if IS_B
  const float im = IS_ROWS ? x.y : -x.y;
  __global float2* row = (__global float2*)to + 2l * i * minor + j;
  row[0] = (float2)(x.x, im);
  row[minor] = (float2)(-im, x.x);
#elif IS_ROWS
  ((__global float2*)to)[(long)i * minor + j] = x;
#else
  to += 2l * i * minor + j;
  to[0] = x.x;
  to[minor] = x.y;
#endif
}
