// What an operand's elements are, and the lane of a row and a step of k: LOADED and ROLE.
//   LOADED   0 bool, 1 char, 2 uchar, 3 short, 4 ushort, 5 int, 6 uint, 7 long, 8 ulong, 9 half, 10 float,
//            11 double, 12 complex float, 13 complex double
//   ROLE     0 of a real product. A complex one is a real one of twice the k and twice the columns:
//            1 A: steps are real and imaginary parts by turns
//            2 B: columns too; the steps of real parts have (re, im), those of imaginary parts (-im, re)
#if LOADED == 0 || LOADED == 2
#define LOADED_TYPE uchar
#elif LOADED == 1
#define LOADED_TYPE char
#elif LOADED == 3
#define LOADED_TYPE short
#elif LOADED == 4
#define LOADED_TYPE ushort
#elif LOADED == 5
#define LOADED_TYPE int
#elif LOADED == 6
#define LOADED_TYPE uint
#elif LOADED == 7
#define LOADED_TYPE long
#elif LOADED == 8
#define LOADED_TYPE ulong
#elif LOADED == 9
#define LOADED_TYPE half
#elif LOADED == 10
#define LOADED_TYPE float
#elif LOADED == 11
#define LOADED_TYPE double
#elif LOADED == 12
#define LOADED_TYPE float2
#else
#define LOADED_TYPE double2
#endif

#if LOADED >= 12
#define REAL(i) ((LANE_TYPE)from[i].x)
#define IMAGINARY(i) ((LANE_TYPE)from[i].y)
#elif LOADED == 9
#define REAL(i) ((LANE_TYPE)vload_half(i, from))
#elif LOADED == 0
#define REAL(i) ((LANE_TYPE)(from[i] != 0))
#else
#define REAL(i) ((LANE_TYPE)from[i])
#endif
#ifndef IMAGINARY
#define IMAGINARY(i) ((LANE_TYPE)0)
#endif

// The lane of a row and a step of k. With LANE 0 and 6, a word of 32 or 4 steps, or fewer at the end: a bit
// for each element that is not zero, or the low byte of each.
static inline LANE_TYPE lane_of(__global const LOADED_TYPE* from, const int r, const int p, const long row,
                                const long column, const int columns) {
#if LANE == 0
  uint word = 0;
  from += r * row + 32L * p * column;
  for (int bit = 0; bit < min(32, columns - 32 * p); bit++) word |= (uint)(from[bit * column] != 0) << bit;
  return word;
#elif LANE == 6
  uint word = 0;
  for (int i = 0; i < min(4, columns - 4 * p); i++) word |= (REAL(r * row + (4L * p + i) * column) & 255) << 8 * i;
  return word;
#elif ROLE == 0
  return REAL(r * row + p * column);
#elif ROLE == 1
  const long at = r * row + p / 2 * column;
  return p % 2 ? IMAGINARY(at) : REAL(at);
#else
  const long at = r / 2 * row + p / 2 * column;
  return r % 2 == p % 2 ? REAL(at) : p % 2 ? -IMAGINARY(at) : IMAGINARY(at);
#endif
}
