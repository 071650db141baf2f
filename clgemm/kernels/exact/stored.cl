// How lanes add up and become a result: LANE and STORED of types.cl. With LANE 6, SIGNS has 1 if the bytes
// of A are signed, and 2 if those of B are.
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
#elif STORED == 7 || STORED == 9
#define STORED_TYPE float
#elif STORED == 10
#define STORED_TYPE float2
#elif STORED == 11
#define STORED_TYPE double2
#else
#define STORED_TYPE double
#endif

// Numbers of an element. A complex result has real and imaginary parts in columns by turns.
#if STORED == 7 || STORED == 8
#define PARTS 2
#else
#define PARTS 1
#endif
#define PLACE_OF(row, column) (PARTS * ((row) * c_row + (column) / PARTS * c_column) + (column) % PARTS)

#if LANE == 0
#define ADD(x, y, sum) ((sum) | ((x) & (y)))
#elif LANE == 6
#define ADD(x, y, sum) add_bytes(x, y, sum)
#elif LANE == 5
#define ADD(x, y, sum) fma(x, y, sum)
#else  // the product of two halves is exact in a float
#define ADD(x, y, sum) ((sum) + (x) * (y))
#endif

#if LANE == 6
#ifdef __NV_CL_C_VERSION
#if SIGNS & 1
#define SIGN_A "s"
#else
#define SIGN_A "u"
#endif
#if SIGNS & 2
#define SIGN_B "s"
#else
#define SIGN_B "u"
#endif
static inline uint add_four(const uint x, const uint y, const uint sum) {
  uint result;
  asm("dp4a." SIGN_A "32." SIGN_B "32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
  return result;
}
#else
#define BYTE(x, i, is_signed) ((is_signed) ? (uint)(int)(char)((x) >> 8 * (i)) : (x) >> 8 * (i) & 255)
static inline uint add_four(const uint x, const uint y, uint sum) {
  for (int i = 0; i < 4; i++) sum += BYTE(x, i, SIGNS & 1) * BYTE(y, i, SIGNS & 2);
  return sum;
}
#endif
static inline uint4 add_bytes(const uint4 x, const uint4 y, const uint4 sum) {
  return (uint4)(add_four(x.x, y.x, sum.x), add_four(x.y, y.y, sum.y), add_four(x.z, y.z, sum.z),
                 add_four(x.w, y.w, sum.w));
}
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
