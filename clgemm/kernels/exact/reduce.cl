// Adds up the products of slices of k: C = the sum over slices of partial[slice][i][j], or C = C + that with `adds`.
//   partial       of m x n numbers each, by lanes; booleans by bytes
//   c             as exact/stored.cl stores it: a complex element is two numbers of a row
// Work-groups: m*n/GROUP, rounded up, of GROUP work-items.
#ifndef GROUP
#error "GROUP: work-items of a work-group"
#endif
#if LANE == 0
#define PARTIAL uchar
#define JOINED(sum, x) ((sum) | (x))
#else
#define PARTIAL LANE_TYPE
#define JOINED(sum, x) ((sum) + (x))
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void exact_reduce(const int m, const int n, const int slices, const int adds, __global const PARTIAL* partial,
                  __global STORED_TYPE* c, const long c_offset, const long c_row, const long c_column) {
  const long i = get_global_id(0), count = (long)m * n;
  if (i >= count) return;
  LANE_TYPE sum = 0;
  for (int slice = 0; slice < slices; slice++) sum = JOINED(sum, partial[slice * count + i]);
  c += PARTS * c_offset;
  store_lane(c, PLACE_OF(i / n, i % n), sum, adds);
}
