// What an operand's elements are, and how one becomes a lane: LOADED of types.cl.
//   CONVERTED(i)   element i of `from` as a lane
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
#else
#define LOADED_TYPE double
#endif

#if LOADED == 9
#define CONVERTED(i) vload_half(i, from)
#elif LOADED == 0
#define CONVERTED(i) ((LANE_TYPE)(from[i] != 0))
#else
#define CONVERTED(i) ((LANE_TYPE)from[i])
#endif

#if LANE == 0
// A word of 32 steps of k, or fewer at the end: a bit for each element that is not zero.
static inline uint word_of(__global const LOADED_TYPE* from, const long column, const int bits) {
  uint word = 0;
  for (int bit = 0; bit < bits; bit++) word |= (uint)(from[bit * column] != 0) << bit;
  return word;
}
#endif
