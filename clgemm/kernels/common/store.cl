// The store of a product: c = value + beta*c, where value is alpha times a sum. C is not read when beta
// is 0, so that NaN there does not spread.

static inline void store_element(__global float* c, const float value, const float beta) {
  *c = beta == 0.0f ? value : value + beta * *c;
}

// For vectors of `width` floats:
//   STORE_ALIGNED(width)(c, value, beta)                   c points to a vector
//   STORE_VECTOR(width)(c, value, beta)                    anywhere
//   STORE_RUN(width)(c, c_column, column, n, value, beta)  columns `column` to column+width-1 of n, c_column apart
#define STORE_ALIGNED(width) JOIN(store_aligned_, width)
#define STORE_VECTOR(width) JOIN(store_vector_, width)
#define STORE_RUN(width) JOIN(store_run_, width)
#define DEFINE_STORES(width)                                                                          \
  static inline void store_aligned_##width(__global FLOAT(width) * c, FLOAT(width) value,             \
                                           const float beta) {                                        \
    if (beta != 0.0f) value += beta * *c;                                                             \
    *c = value;                                                                                       \
  }                                                                                                   \
  static inline void store_vector_##width(__global float* c, FLOAT(width) value, const float beta) {  \
    if (beta != 0.0f) value += beta * LOAD(width, c);                                                 \
    STORE(width, value, c);                                                                           \
  }                                                                                                   \
  static inline void store_run_##width(__global float* c, const long c_column, const int column,      \
                                       const int n, const FLOAT(width) value, const float beta) {     \
    if (c_column == 1 && column + width <= n) {                                                       \
      store_vector_##width(c, value, beta);                                                           \
    } else {                                                                                          \
      float values[width];                                                                            \
      STORE(width, value, values);                                                                    \
      for (int j = 0; j < min(width, n - column); j++)                                                \
        store_element(c + j * c_column, values[j], beta);                                             \
    }                                                                                                 \
  }
DEFINE_STORES(1)
DEFINE_STORES(2)
DEFINE_STORES(4)
DEFINE_STORES(8)
DEFINE_STORES(16)
