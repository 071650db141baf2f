// C = alpha*A*B + beta*C for an A of a few rows, for GPUs: B is read once, in place, at the memory's speed.
//   a[i*a_row + p*a_column]      m x k
//   b[p*b_row + j*b_column]      k x n; b_column is 1 or, with ALONG_K, b_row
//   c[i*c_row + j*c_column]      m x n; not read when beta is 0
// A work-group computes ROWS rows x STRIP columns of C over one slice of k. Its work-items lie ABREAST along the
// contiguous dimension of B, WIDTH floats each, and GROUP/ABREAST across it. Where the rows of B are contiguous,
// a work-item adds up WIDTH columns of its own, over every GROUP/ABREAST-th row of B; with ALONG_K it adds up
// its share of one column. Then the work-items add up their sums through local memory. CHUNK columns of A lie
// there, too; with CHUNK 0, which is not for ALONG_K, A is read in place.
// Loads of B bring WIDTH floats, of which n (with ALONG_K, k) is a multiple. AHEAD loads are under way at
// once; AHEAD of them divide a chunk.
// UNALIGNED, with ALONG_K, is for columns of B that begin anywhere and have any length: loads of WIDTH floats begin at
// the first aligned element of a column, and single ones bring the few before it and the last. What a load meets in A
// begins anywhere in local memory, and is read element by element. There, an element lies PLANE after the one before
// it, so that work-items side by side read neighbours.
// Split-k: several slices of k, slice_k long each, are several results. Slice s goes to c + s*c_slice; or,
// with FUSED_SPLIT_K, to `slices_out`, and the sum of all to c (split_k/fused.cl).
//
// CACHED_LOADS is for a B that is larger than the last cache and multiplied again and again. With plain loads the end
// of B evicts its beginning, and the next call finds nothing. So of each AHEAD loads, CACHED_LOADS leave their cache
// lines' priority as it is, and the others mark their lines as the first to evict: the same part of B stays.
// On an H200 other data is not evicted sooner by this than by plain loads. The policy evict_last is no faster,
// and keeps B long after its last use. For NVIDIA's compiler, compute capability 8.0 and later, WIDTH 4.
// Work-groups: matrices x slices x (m/ROWS, rounded up) x (n/STRIP, rounded up), GROUP work-items each.
// Local: 4*(ROWS*CHUNK + GROUP*WIDTH) bytes; with UNALIGNED, 4*ROWS*WIDTH more.
// After: NVIDIA, "Parallel thread execution ISA", cache eviction priority hints.
#ifndef ROWS
#error "ROWS: rows of C at a time"
#endif
#ifndef WIDTH
#error "WIDTH: floats per load of B"
#endif
#ifndef GROUP
#error "GROUP: work-items per work-group"
#endif
#ifndef ABREAST
#error "ABREAST: work-items side by side along the memory of B"
#endif
#ifndef CHUNK
#error "CHUNK: columns of A in local memory; 0 if A is read where it lies, not with ALONG_K"
#endif
#ifndef AHEAD
#error "AHEAD: loads of B under way at once"
#endif
#ifndef CACHED_LOADS
#error "CACHED_LOADS: of AHEAD loads of B, those that stay in the last cache; the others are evicted first; 0: all alike"
#endif
#ifndef ALONG_K
#error "ALONG_K: 1 if the columns of B lie along its memory, 0 if its rows do"
#endif
#ifndef UNALIGNED
#error "UNALIGNED: 1 if the columns of B begin and end anywhere, 0 if loads of WIDTH floats divide them"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#define ACROSS (GROUP / ABREAST)
#define STRIP (ALONG_K ? ACROSS : ABREAST * WIDTH)
#define ADDED (ALONG_K ? ABREAST : ACROSS)  // work-items that share the same sums
#define PLANE (CHUNK / WIDTH + 1)
// Elements of a row of A in local memory: with UNALIGNED, also those that the last load of a chunk meets.
#define DEPTH (UNALIGNED ? CHUNK + WIDTH : CHUNK)
#define SHARE ((ROWS * DEPTH + GROUP - 1) / GROUP)  // elements of A that each work-item brings to local memory
// The first row of a chunk that a work-item loads, and the distance to the next.
#define FIRST (ALONG_K ? x * WIDTH : y)
#define STEP (ALONG_K ? ABREAST * WIDTH : ACROSS)
#if UNALIGNED  // what a load of B is multiplied by
#define OF_A(i, p) by_element(rows + (i) * DEPTH + (uint)(p) / WIDTH, places)
#define EDGES ((2 * WIDTH - 3 + ABREAST) / ABREAST)  // elements of a column beside whole loads, for each work-item
#elif ALONG_K
#define OF_A(i, p) LOAD_ALIGNED(WIDTH, __local, rows + (i) * DEPTH + (p))
#else
#define OF_A(i, p) ((FLOAT(WIDTH))(rows[(p) * ROWS + (i)]))
#endif

// The cache policies of loads: `stays` for CACHED_LOADS of each AHEAD, `leaves` for the others.
typedef struct {
  ulong stays, leaves;
} Policies;

#if CACHED_LOADS > 0 && defined(__NV_CL_C_VERSION)
static inline Policies cache_policies(void) {
  Policies policies;
  asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policies.stays));
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policies.leaves));
  return policies;
}

// Load number `load` of AHEAD.
static inline float4 load_of_b(const int load, __global const float* p, const Policies policies) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(load < CACHED_LOADS ? policies.stays : policies.leaves));
  return v;
}
#else
static inline Policies cache_policies(void) {
  const Policies none = {0, 0};
  return none;
}

static inline FLOAT(WIDTH) load_of_b(const int load, __global const float* p, const Policies policies) {
  return LOAD_ALIGNED(WIDTH, __global, p);
}
#endif

#if UNALIGNED
// Elements of a row of A in local memory, from their places.
static inline FLOAT(WIDTH) by_element(__local const float* row, const uint* places) {
  float values[WIDTH];
  #pragma unroll
  for (int e = 0; e < WIDTH; e++) values[e] = row[places[e]];
  return LOAD(WIDTH, values);
}

// A float as the first of WIDTH; the others are zero.
static inline FLOAT(WIDTH) first_float(const float value) {
  float values[WIDTH];
  #pragma unroll
  for (int e = 0; e < WIDTH; e++) values[e] = e ? 0.0f : value;
  return LOAD(WIDTH, values);
}
#endif

#if CHUNK == 0
// Add AHEAD loads of B from row p on, times A. Unless `all` are there, those from `end` on are zero: their latencies
// overlap all the same.
static inline __attribute__((always_inline)) void add_loads(
    FLOAT(WIDTH)* sum, __global const float* a, const long a_row, const long a_column, __global const float* b, const long b_row,
    const int p, const int end, const int rows_here, const Policies policies, const bool all) {
  FLOAT(WIDTH) v[AHEAD];
  float of_a[AHEAD][ROWS];
  #pragma unroll
  for (int f = 0; f < AHEAD; f++) {
    const int here = p + f * STEP;
    const bool there = all || here < end;
    v[f] = there ? load_of_b(f, b + here * b_row, policies) : (FLOAT(WIDTH))(0.0f);
    #pragma unroll
    for (int i = 0; i < ROWS; i++) of_a[f][i] = there ? a[min(i, rows_here - 1) * a_row + here * a_column] : 0.0f;
  }
  #pragma unroll
  for (int f = 0; f < AHEAD; f++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) sum[i] = MULTIPLY_ADD((FLOAT(WIDTH))(of_a[f][i]), v[f], sum[i]);
}
#endif

#if CHUNK > 0
// Load a work-item's share of a chunk of A. Past the last row and column, it is zero.
static inline void load_chunk(float* own_a, __global const float* a, const long a_row, const long a_column, const int rows_here,
                              const int columns_here) {
  const int item = get_local_id(0);
  #pragma unroll
  for (int s = 0; s < SHARE; s++) {
    const int i = s * GROUP + item, row = ALONG_K ? i / DEPTH : i % ROWS, p = ALONG_K ? i % DEPTH : i / ROWS;
    own_a[s] = row < rows_here && p < columns_here ? a[row * a_row + p * a_column] : 0.0f;
  }
}
#endif

// Fused split-k: HELPERS work-items add up each of the ELEMENTS elements of the slices.
#define ELEMENTS (ROWS * STRIP)
#define HELPERS (GROUP < 2 * ELEMENTS ? 1 : GROUP < 16 * ELEMENTS ? GROUP / ELEMENTS : 16)
// Many parts are added up in two steps, first those that are FEW apart.
#define FEW (ADDED > 32 ? 8 : ADDED)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void skinny_product(const int m, const int n, const int k, const int slice_k, const int4 counts,
                    const float alpha, const float beta,
                    __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
                    __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
                    __global float* restrict c, const long c_offset, const long c_row, const long c_column,
                    const long c_slice, const long4 c_strides FUSED_ARGUMENTS GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
#if CHUNK > 0
  __local float rows[DEPTH * ROWS] __attribute__((aligned(64)));
#endif
  __local float parts[GROUP * WIDTH];
  const int strips = (n + STRIP - 1) / STRIP, blocks = (m + ROWS - 1) / ROWS, slices = (k + slice_k - 1) / slice_k;
  uint group = get_group_id(0);
  const int column_0 = group % strips * STRIP, columns = min(STRIP, n - column_0);
  group /= strips;
  const int row_0 = group % blocks * ROWS, rows_here = min(ROWS, m - row_0);
  group /= blocks;
  const int slice = group % slices, first = slice * slice_k, last = min(first + slice_k, k);
  const uint matrix = group / slices;
  const int item = get_local_id(0), x = item % ABREAST, y = item / ABREAST;

  // Columns past the last repeat it, and are not stored; rows past the last are zero.
  const int own = ALONG_K ? min(y, columns - 1) : min(x, columns / WIDTH - 1) * WIDTH;
  a += a_offset + matrix_offset(matrix, counts, a_strides) + row_0 * a_row;
  b += b_offset + matrix_offset(matrix, counts, b_strides) + (column_0 + own) * b_column;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row_0 * c_row + column_0 * c_column + slice * c_slice;

#if FUSED_SPLIT_K
  const uint piece = (matrix * blocks + row_0 / ROWS) * strips + column_0 / STRIP;
  slices_out += (long)piece * slices * ELEMENTS;
  __global float* written = slices_out + slice * ELEMENTS;
#endif

  const Policies policies = cache_policies();
  FLOAT(WIDTH) sum[ROWS];
  #pragma unroll
  for (int i = 0; i < ROWS; i++) sum[i] = (FLOAT(WIDTH))(0.0f);

#if CHUNK == 0
  int p = first + FIRST;
  for (; p + (AHEAD - 1) * STEP < last; p += AHEAD * STEP)
    add_loads(sum, a, a_row, a_column, b, b_row, p, last, rows_here, policies, true);
  if (p < last) add_loads(sum, a, a_row, a_column, b, b_row, p, last, rows_here, policies, false);
#else
#if UNALIGNED
  // A column has `before` elements, whole loads, and `after` elements.
  const int before = min(-(int)((size_t)(b + first) / sizeof(float)) & (WIDTH - 1), last - first);
  const int after = (last - first - before) % WIDTH;
  uint places[WIDTH];  // of the elements that the first load of a column meets
  #pragma unroll
  for (int e = 0; e < WIDTH; e++) places[e] = (uint)(before + e) % WIDTH * PLANE + (uint)(before + e) / WIDTH;
  float edge_b[EDGES], edge_a[EDGES][ROWS];
  #pragma unroll
  for (int e = 0; e < EDGES; e++) {
    const int edge = x + e * ABREAST, q = edge < before ? first + edge : last - after + edge - before;
    const bool there = edge < before + after;
    edge_b[e] = there ? b[q] : 0.0f;
    #pragma unroll
    for (int i = 0; i < ROWS; i++) edge_a[e][i] = there && i < rows_here ? a[i * a_row + q * a_column] : 0.0f;
  }
#else
  const int before = 0, after = 0;
#endif
  // The loads of B go on from chunk to chunk, and those of A are a chunk ahead. Whole loads bring `depth` rows of B.
  const int depth = last - first - before - after;
  a += first * a_column;
  b += (first + before) * b_row;
  float own_a[SHARE];
  load_chunk(own_a, a, a_row, a_column, rows_here, last - first);
  FLOAT(WIDTH) v[AHEAD];
  #pragma unroll
  for (int f = 0; f < AHEAD; f++)
    if (FIRST + f * STEP < depth) v[f] = load_of_b(f, b + (FIRST + f * STEP) * b_row, policies);
  for (int chunk = 0; chunk < last - first; chunk += CHUNK) {
    barrier(CLK_LOCAL_MEM_FENCE);  // the chunk before has been read
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      const int i = s * GROUP + item, p = i % DEPTH;
      if (i < ROWS * DEPTH) rows[UNALIGNED ? i - p + p % WIDTH * PLANE + p / WIDTH : i] = own_a[s];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int later = chunk + CHUNK;
    if (later < last - first) load_chunk(own_a, a + later * a_column, a_row, a_column, rows_here, last - first - later);
    for (int p = FIRST; p < min(CHUNK, depth - chunk); p += AHEAD * STEP) {
      #pragma unroll
      for (int f = 0; f < AHEAD; f++) {
        const int here = p + f * STEP, next = chunk + here + AHEAD * STEP;
        if (chunk + here < depth) {
          #pragma unroll
          for (int i = 0; i < ROWS; i++) sum[i] = MULTIPLY_ADD(OF_A(i, here), v[f], sum[i]);
        }
        if (next < depth) v[f] = load_of_b(f, b + next * b_row, policies);
      }
    }
  }
#if UNALIGNED
  #pragma unroll
  for (int e = 0; e < EDGES; e++)
    #pragma unroll
    for (int i = 0; i < ROWS; i++) sum[i] = MULTIPLY_ADD(first_float(edge_a[e][i]), first_float(edge_b[e]), sum[i]);
#endif
#endif

  for (int i = 0; i < rows_here; i++) {
    float values[WIDTH];
    #pragma unroll
    for (int r = 0; r < ROWS; r++)  // constant indices keep the sums in registers
      if (r == i) STORE(WIDTH, sum[r], values);
    barrier(CLK_LOCAL_MEM_FENCE);
#if ALONG_K
    float own_sum = values[0];
    #pragma unroll
    for (int v = 1; v < WIDTH; v++) own_sum += values[v];
    parts[x * ACROSS + y] = own_sum;
#else
    #pragma unroll
    for (int v = 0; v < WIDTH; v++) parts[y * STRIP + x * WIDTH + v] = values[v];
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if FEW < ADDED
    for (int j = item; j < FEW * STRIP; j += GROUP) {
      float total = parts[j];
      #pragma unroll 4
      for (int other = j + FEW * STRIP; other < ADDED * STRIP; other += FEW * STRIP) total += parts[other];
      parts[j] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int j = item; j < columns; j += GROUP) {
      float total = parts[j];
      #pragma unroll 8
      for (int part = 1; part < FEW; part++) total += parts[part * STRIP + j];
#if FUSED_SPLIT_K
      written[i * STRIP + j] = total;
#else
      store_element(c + i * c_row + j * c_column, alpha * total, beta);
#endif
    }
  }

#if FUSED_SPLIT_K
  __local uint earlier;
  if (!comes_last(counters + piece, slices, &earlier)) return;
#if HELPERS > 1
  float share = 0.0f;
  if (item < HELPERS * ELEMENTS) {
    #pragma unroll 8
    for (int other = item / ELEMENTS; other < slices; other += HELPERS) share += slices_out[other * ELEMENTS + item % ELEMENTS];
  }
  parts[item] = share;
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  for (int e = item; e < ELEMENTS; e += GROUP) {
    float total = 0.0f;
#if HELPERS > 1
    #pragma unroll
    for (int helper = 0; helper < HELPERS; helper++) total += parts[helper * ELEMENTS + e];
#else
    for (int other = 0; other < slices; other++) total += slices_out[other * ELEMENTS + e];
#endif
    const int i = e / STRIP, j = e % STRIP;
    if (i < rows_here && j < columns) store_element(c + i * c_row + j * c_column, alpha * total, beta);
  }
#endif
}
