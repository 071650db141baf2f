// How lanes add up and become a result: LANE and STORED of types.cl.
#if STORED == 0 || STORED == 1
#define STORED_TYPE uchar
#elif STORED == 2
#define STORED_TYPE ushort
#elif STORED == 3
#define STORED_TYPE uint
#elif STORED == 4
#define STORED_TYPE ulong
#elif STORED == 5
#define STORED_TYPE half
#elif STORED == 7
#define STORED_TYPE float
#else
#define STORED_TYPE double
#endif

// Numbers of an element. A complex result has real and imaginary parts in columns by turns.
#if STORED >= 7
#define PARTS 2
#else
#define PARTS 1
#endif
#define PLACE_OF(row, column) (PARTS * ((row) * c_row + (column) / PARTS * c_column) + (column) % PARTS)

#if LANE == 0
#define ADD(x, y, sum) ((sum) | ((x) & (y)))
#elif LANE == 5
#define ADD(x, y, sum) fma(x, y, sum)
#else  // the product of two halves is exact in a float
#define ADD(x, y, sum) ((sum) + (x) * (y))
#endif

static inline void store_lane(__global STORED_TYPE* c, const long at, const LANE_TYPE sum, const int adds) {
#if STORED == 5
  vstore_half_rte(sum, at, c);
#elif STORED == 0
  c[at] = (adds && c[at] != 0) || sum != 0;
#else
  c[at] = (STORED_TYPE)(sum + (adds ? (LANE_TYPE)c[at] : (LANE_TYPE)0));
#endif
}
