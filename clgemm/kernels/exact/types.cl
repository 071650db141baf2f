// The types of lanes and results, by the numbers of clgemm/kernels/exact/types.py.
//   LANE     0 bits (32 of k in a word), 1 ushort, 2 uint, 3 ulong, 4 float, 5 double,
//            6 bytes (four of k in a word), 7 float16 (two of k in a word, whose sums are float),
//            8 complex float, 9 complex double
//   STORED   0 bool, 1 uchar, 2 ushort, 3 uint, 4 ulong, 5 half, 6 double,
//            7 complex float, 8 complex double, 9 float: of a slice, 10 and 11: 7 and 8 of complex lanes
// Lanes of integers are unsigned: what overflows is well defined, and the low bits are those of signed
// numbers.
#if LANE == 0 || LANE == 2 || LANE == 6
#define LANE_TYPE uint
#elif LANE == 1
#define LANE_TYPE ushort
#elif LANE == 3
#define LANE_TYPE ulong
#elif LANE == 4 || LANE == 7
#define LANE_TYPE float
#elif LANE == 8
#define LANE_TYPE float2
#else
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#if LANE == 9
#define LANE_TYPE double2
#else
#define LANE_TYPE double
#endif
#endif
#define LANES(width) JOIN(LANE_TYPE, width)
#define WORD (LANE == 0 ? 32 : LANE == 6 ? 4 : LANE == 7 ? 2 : 1)  // steps of k in a word
#if LANE == 7
#define WORD_TYPE uint
#else
#define WORD_TYPE LANE_TYPE
#endif

