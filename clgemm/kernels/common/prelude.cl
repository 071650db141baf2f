// Compiled in front of every kernel file: vectors named by a macro's width, and the shared arithmetic.
//   FLOAT(4) is float4; LOAD(4, p) reads p[0..3] (p as aligned as a float); STORE(4, v, p) writes them.
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
// The same from an address that is a multiple of the vector's size: one instruction everywhere.
#define LOAD_ALIGNED(width, space, p) (*(space const FLOAT(width)*)(p))

// Brings the cache line of an address near. A hint: the address may lie outside of any buffer. OpenCL's
// own prefetch() does nothing in the runtimes for CPUs, whose compilers (Clang) all know this one; it
// takes generic pointers, which OpenCL C 1.2 makes of integers only.
#define FETCH(p) __builtin_prefetch((const void*)(size_t)(p), 0, 3)

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

// A gated kernel runs only where a product on tensor cores has given up: GATE_ARGUMENTS end its
// arguments, GATE begins its body. Counting and multiplying kernels: tensor_core/pack.cl, tensor_core/wgmma.cl.
#ifdef GATED
#define GATE_ARGUMENTS , __global const uint* gate, const int gate_most
#define GATE if (*gate <= gate_most) return;
#else
#define GATE_ARGUMENTS
#define GATE
#endif
