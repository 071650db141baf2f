// Compiled in front of every kernel file: vectors whose width is a macro, and the shared arithmetic.
//   FLOAT(4)           float4; FLOAT(1) is float
//   LOAD(4, p)         p[0..3], where p is aligned as a float
//   STORE(4, v, p)     p[0..3] = v
// Parameters: FMA of kernels that multiply; GATED (see below).
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
typedef float float1;
#define LOAD_1(p) (*(p))
#define LOAD_2(p) vload2(0, p)
#define LOAD_4(p) vload4(0, p)
#define LOAD_8(p) vload8(0, p)
#define LOAD_16(p) vload16(0, p)
#define STORE_1(v, p) (*(p) = (v))
#define STORE_2(v, p) vstore2(v, 0, p)
#define STORE_4(v, p) vstore4(v, 0, p)
#define STORE_8(v, p) vstore8(v, 0, p)
#define STORE_16(v, p) vstore16(v, 0, p)

#define FLOAT(width) JOIN(float, width)
#define LOAD(width, p) JOIN(LOAD_, width)(p)
#define STORE(width, v, p) JOIN(STORE_, width)(v, p)
// Loads from an address that is a multiple of the vector's size: one instruction on every device.
#define LOAD_ALIGNED(width, space, p) (*(space const FLOAT(width)*)(p))

// Prefetches the cache line at an address. This is a hint: the address may lie outside of any buffer.
// OpenCL's own prefetch() does nothing in the runtimes for CPUs; their compilers (Clang) all know this
// builtin. It takes a generic pointer, which OpenCL C 1.2 makes from an integer only.
#define FETCH(p) __builtin_prefetch((const void*)(size_t)(p), 0, 3)

#if FMA
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else  // the compiler may contract this: -cl-mad-enable
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// The offset of matrix `index` of a batch, in elements. The batch has up to four dimensions of
// `counts` matrices each, w the innermost, which lie `strides` elements apart.
static inline long matrix_offset(uint index, int4 counts, long4 strides) {
  const uint w = index % counts.w, yzw = index / counts.w;
  const uint z = yzw % counts.z, xy = yzw / counts.z;
  const uint y = xy % counts.y, x = xy / counts.y;
  return x * strides.x + y * strides.y + z * strides.z + w * strides.w;
}

// GATED: a conditional launch, of a fallback. It does something only if the kernels before it, on tensor
// cores, found too many outliers (tensor_core/tile.cl) and wrote nothing. GATE_ARGUMENTS end the kernel's
// parameters. Its body begins with `if (GATE_IS_CLOSED) return;`.
//   *gate      outliers that were counted
//   gate_most  the largest count at which the tensor cores' result stands
#ifdef GATED
#define GATE_ARGUMENTS , __global const uint* gate, const int gate_most
#define GATE_IS_CLOSED (*gate <= gate_most)
#else
#define GATE_ARGUMENTS
#define GATE_IS_CLOSED false
#endif
