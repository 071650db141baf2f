// Compiled in front of every kernel file: vectors named by a macro's width, and the shared arithmetic.
//   FLOAT(4) is float4; LOAD(4, p) reads p[0..3] (p as aligned as a float); STORE(4, v, p) writes them.
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
typedef float float1;
#define vload1(i, p) (*((p) + (i)))
#define vstore1(v, i, p) (*((p) + (i)) = (v))

#define FLOAT(width) JOIN(float, width)
#define LOAD(width, p) JOIN(vload, width)(0, p)
#define STORE(width, v, p) JOIN(vstore, width)(v, 0, p)
// The same from an address that is a multiple of the vector's size: one instruction everywhere.
#define LOAD_ALIGNED(width, space, p) (*(space const FLOAT(width)*)(p))

#if FMA  // of the kernel's config; a kernel that does no arithmetic has none
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// Where matrix `index` of a stack begins. The stack is walked by four nested loops, w the innermost,
// of `counts` steps each; `strides` are in elements.
static inline long matrix_offset(uint index, int4 counts, long4 strides) {
  const uint w = index % counts.w, yzw = index / counts.w;
  const uint z = yzw % counts.z, xy = yzw / counts.z;
  const uint y = xy % counts.y, x = xy / counts.y;
  return x * strides.x + y * strides.y + z * strides.z + w * strides.w;
}
