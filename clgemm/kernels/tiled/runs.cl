// Stores of elements of C that are neighbours in memory but not aligned for a vector: by the widest stores that are.
//   STORE_RUN_OF(width)(c, values, there, beta)   the first `there` of `width` values
#define STORE_RUN_OF(width) JOIN(store_run_of_, width)

static inline void store_run_of_1(__global float* c, const float* values, const int there, const float beta) {
  if (there > 0) store_element(c, values[0], beta);
}

// Neighbours mostly agree on the alignment, so that few of the branches are taken.
#define DEFINE_STORE_RUN_OF(width)                                                                          \
  static inline void store_run_of_##width(__global float* c, const float* values, const int there,          \
                                          const float beta) {                                               \
    if (there < width) {                                                                                    \
      _Pragma("unroll") for (int j = 0; j < width - 1; j++)                                                 \
        if (j < there) store_element(c + j, values[j], beta);                                               \
    } else if ((size_t)c % sizeof(FLOAT(width)) == 0) {                                                     \
      store_aligned_##width((__global FLOAT(width)*)c, LOAD(width, values), beta);                          \
    } else if ((size_t)c % sizeof(float2) == 0) {                                                           \
      _Pragma("unroll") for (int j = 0; j < width; j += 2)                                                  \
        store_aligned_2((__global float2*)(c + j), LOAD(2, values + j), beta);                              \
    } else {                                                                                                \
      store_element(c, values[0], beta);                                                                    \
      _Pragma("unroll") for (int j = 1; j < width - 1; j += 2)                                              \
        store_aligned_2((__global float2*)(c + j), LOAD(2, values + j), beta);                              \
      store_element(c + width - 1, values[width - 1], beta);                                                \
    }                                                                                                       \
  }
DEFINE_STORE_RUN_OF(2)
DEFINE_STORE_RUN_OF(4)
DEFINE_STORE_RUN_OF(8)
DEFINE_STORE_RUN_OF(16)
