// Numbers of eleven bits, as tensor cores multiply them exactly: tf32, or two of fp16 in a uint. And what tells how to split.
static inline uint eleven_bits(float x) {
  uint near;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near) : "f"(x));
  return near;
}

static inline uint halves(float low, float high) {
  uint both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

static inline float2 floats(uint both) {
  float2 two;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(two.x), "=f"(two.y) : "r"(both));
  return two;
}

static inline uint split_two(float x, float y, uint* low) {
  const uint high = halves(x, y);
  const float2 near = floats(high);
  *low = halves(x - near.x, y - near.y);
  return high;
}

// Whether two parts cannot hold an element: it is not zero and smaller than one with the bits `tiny`, or at least as large as
// one with the bits `huge`.
static inline bool is_outlier(const float x, const uint tiny, const uint huge) {
  const uint size = as_uint(x) & 0x7fffffff;
  return size - 1 < tiny - 1 || size >= huge;
}

// The compiler knows that the result is the same for the warp.
static inline uint largest_of_warp(uint x) {
  uint largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(x));
  return largest;
}
