// The types of lanes and results, by the numbers of clgemm/kernels/exact/plan.py.
//   LANE     0 bits (32 of k in a word), 1 ushort, 2 uint, 3 ulong, 4 float, 5 double,
//            6 bytes (four of k in a word)
//   STORED   0 bool, 1 uchar, 2 ushort, 3 uint, 4 ulong, 5 half, 6 double,
//            7 complex float, 8 complex double, 9 float: of a slice
// Lanes of integers are unsigned: what overflows is well defined, and the low bits are those of signed
// numbers.
#if LANE == 0 || LANE == 2 || LANE == 6
#define LANE_TYPE uint
#elif LANE == 1
#define LANE_TYPE ushort
#elif LANE == 3
#define LANE_TYPE ulong
#elif LANE == 4
#define LANE_TYPE float
#else
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define LANE_TYPE double
#endif
#define LANES(width) JOIN(LANE_TYPE, width)
#define WORD (LANE == 0 ? 32 : LANE == 6 ? 4 : 1)  // steps of k in a lane

