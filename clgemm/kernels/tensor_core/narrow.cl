// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 9.0, for a B of few columns. A is read once, in
// place, and split in registers; only B is packed.
//   a[i*a_row + p*a_column]     m x k; columns are contiguous with ALONG_K, otherwise rows are
//   b[p*b_row + j*b_column]     k x n, any strides
//   packed                      B in chunks (tensor_core/chunk.cl), ordered by method, matrix, tile of columns, k. In halves
//                               there are `packs` chunks, of the matrices that b has (own_counts, own_strides), without the
//                               repetitions of the batch (packed_strides); in tf32 twice as many
//   c[i*c_row + j*c_column]     m x n; not read when beta is 0
// Loads bring LOAD_A floats of A. Its rows, strides and address are multiples of that.
//
// A work-group computes a tile of C, TILE_M x COLUMNS, over one slice of k. First the work-groups take chunks of B to pack
// until none is left, and wait until all are packed. Then the warp groups multiply (tensor_core/turns.cl). Work-items load
// what they split of the next chunk of A, and prefetch a later one, AHEAD chunks on, to the second-level cache.
// A work-group begins in halves. Where too many elements cannot be split, it goes on in tf32: then it takes chunks of B to
// pack in tf32, together with others that do the same. docs/tensor_cores.md has the error bound.
//
// Atomic counters, all 0 before and after:
//   pack_counters[0], [2]    chunks that work-groups have taken to pack, in halves and in tf32
//   pack_counters[1], [3]    chunks that are packed
//   pack_counters[4]         work-groups that no longer read the counters, of which the last sets them to 0
// Split-k: slice s goes to c + s*c_slice; or, with FUSED_SPLIT_K, to `slices_out`, and the sum of all to c (split_k/fused.cl, whose
// counters follow these).
// Work-groups: matrices x slices x tiles of C, ITEMS work-items each. Local: LOCAL_BYTES.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions, asynchronous copies.
#define PITCH_C (TILE_M + 4)  // floats of a column of C in local memory, against bank conflicts
#define TILE_C_BYTES (4 * COLUMNS * PITCH_C)
#define PACK_COUNTERS 5       // atomic counters
#define LOCAL_BYTES (STAGES * CHUNK_BYTES > TILE_C_BYTES ? STAGES * CHUNK_BYTES : TILE_C_BYTES)

// The tile of C in vectors of four rows, column by column: a work-item has OWN of them, ITEMS apart.
#define FOURS (COLUMNS * TILE_M / 4)
#define OWN ((FOURS + ITEMS - 1) / ITEMS)
#define SLICES_AT_ONCE (OWN > 8 ? 2 : 4)  // whose loads are under way, as registers allow
static inline int own_index(const int i) { return i * ITEMS + (int)get_local_id(0); }
static inline bool is_own(const int i) { return FOURS % ITEMS == 0 || own_index(i) < FOURS; }
static inline int own_place(const int i) { return own_index(i) / (TILE_M / 4) * PITCH_C + own_index(i) % (TILE_M / 4) * 4; }

// As matrix_offset, without its divisions, one after the other, where there is no batch.
static inline long offset_of(const uint matrix, const int4 counts, const long4 strides) {
  return matrix == 0 ? 0 : matrix_offset(matrix, counts, strides);
}

// B, and where its chunks go.
typedef struct {
  __global const float* b;
  long row, column;
  int4 counts;
  long4 strides;
  int k, n, chunks, tiles_n;  // chunks of a tile of columns
  uint packs;
  int least;
  __global uchar* packed;
} Packing;

// Tell all work-items which chunk work-item 0 has drawn. The chunk that they packed before is done.
static inline uint drawn_chunk(const uint next, __local Found* found, __local uint* drawn) {
  if (get_local_id(0) == 0) {
    *drawn = next;
    reset(found);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return *drawn;
}

// Load this work-item's shares of a chunk.
static inline __attribute__((always_inline)) void begin_packing(float shares[][16], const bool tf32, const Packing* p,
                                                                const uint chunk) {
  const uint tile = chunk / p->chunks;
  const int k_0 = chunk % p->chunks * CHUNK_OF(tf32), column_0 = tile % p->tiles_n * COLUMNS;
  __global const float* from = p->b + offset_of(tile / p->tiles_n, p->counts, p->strides);
  load_shares(shares, tf32, from + k_0 * p->row + column_0 * p->column, p->row, p->column, p->k - k_0, p->n - column_0);
}

// Pack a chunk that `see_shares` has seen, and count it.
static inline __attribute__((always_inline)) void end_packing(float shares[][16], const bool tf32, const Packing* p,
                                                              const uint chunk, __global uint* done, __local Found* found) {
  pack_shares(shares, tf32, p->least, p->packed + (long)chunk * CHUNK_BYTES, found);
  fence_copies();
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) == 0) count_up(done, 1);
}

// Wait until all chunks are packed. Deadlock-free: a work-group waits only for chunks that others have taken, which therefore
// are running.
static inline void wait_for_all(const Packing* p, __global const uint* done) {
  if (get_local_id(0) == 0) {
    while (counted(done) < p->packs) {}
    fence_copies();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

// Set the counters to 0 if all other work-groups have left them before; `left` is how many have, in work-item 0.
static inline void clear_if_last(const uint left, __global uint* counters) {
  if (get_local_id(0) != 0 || left != get_num_groups(0) - 1) return;
  #pragma unroll
  for (int i = 0; i < PACK_COUNTERS; i++) counters[i] = 0;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_narrow(const int m, const int n, const int k, const int slice_k, const int least, const int4 counts, const float alpha,
                   const float beta, __global const float* restrict a, const long a_offset, const long a_row, const long a_column,
                   const long4 a_strides, __global const float* restrict b, const long b_offset, const long b_row,
                   const long b_column, const long4 b_strides, __global uchar* packed, const long4 packed_strides, const int packs,
                   const int4 own_counts, const long4 own_strides, __global uint* pack_counters,
                   __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                   const long4 c_strides FUSED_ARGUMENTS) {
  __local uchar memory[LOCAL_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[2 * STAGES];  // for each method
  __local Found found;
  __local Turns turns;
  __local uint drawn;
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma

  const uint item = get_local_id(0);
  uint next_chunk = 0;
  if (item == 0) next_chunk = atomic_add(pack_counters, 1);  // early, to hide its latency
  const int chunks = (k + CHUNK_OF(false) - 1) / CHUNK_OF(false);
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + COLUMNS - 1) / COLUMNS, slices = (k + slice_k - 1) / slice_k;
  const uint tile = get_group_id(0) % (tiles_m * tiles_n), result = get_group_id(0) / (tiles_m * tiles_n);
  const uint slice = result % slices, matrix = result / slices;
  const int row_0 = tile / tiles_n * TILE_M, tile_n = tile % tiles_n, column_0 = tile_n * COLUMNS, first = slice * slice_k;
  c += c_offset + offset_of(matrix, counts, c_strides) + row_0 * c_row + column_0 * c_column + slice * c_slice;
  const int rows = m - row_0, columns = n - column_0;

  Slice s;
  s.a = a + a_offset + offset_of(matrix, counts, a_strides) + row_0 * a_row + first * a_column;
  s.b = b + b_offset + offset_of(matrix, counts, b_strides) + column_0 * b_column + first * b_row;
  s.a_row = a_row, s.a_column = a_column, s.b_row = b_row, s.b_column = b_column;
  s.rows = rows, s.columns = columns, s.depth = min(slice_k, k - first), s.least = least;
  Packing packing = {b + b_offset, b_row, b_column, own_counts, own_strides, k, n, chunks, tiles_n, packs, least, packed};
  uint base = (uint)(ulong)memory;
  asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(base));  // tells the compiler that it is the same for the warp
  const long place = offset_of(matrix, counts, packed_strides) + (long)tile_n * chunks + first / CHUNK_OF(false);
  Feed feed = {packed + place * CHUNK_BYTES, base, (uint)(ulong)barriers, item == 0};
  if (item == 0) {
    for (int stage = 0; stage < 2 * STAGES; stage++) initialise(feed.ready + 8 * stage, 1);
    fence_initialised();
    turns.from[0] = turns.from[1] = turns.last = NEVER;
    turns.marks[0][0] = turns.marks[0][1] = turns.marks[1][0] = turns.marks[1][1] = 0;
  }
  if (item / GROUP == 1) asm volatile("bar.arrive %0, 256;" :: "r"(TURN(0)) : "memory");  // the first warp group takes the first turn

  int from = NEVER;  // where tf32 goes on
  float x[32];
  Reader reader;
  bool has_looked = false, is_packing;
  do {
    const uint chunk = drawn_chunk(next_chunk, &found, &drawn);
    is_packing = chunk < packing.packs;
    float shares[SHARES_OF(false)][16];
    if (is_packing) begin_packing(shares, false, &packing, chunk);
    if (is_packing) see_shares(shares, false, &found);
    if (!has_looked) reader = begin_reading(x, &s, false, 0);  // after B, for whose chunks all others wait
    if (is_packing) {
      next_chunk = -1;
      if (item == 0 && from != 0) next_chunk = atomic_add(pack_counters, 1);  // early, to hide its latency
      end_packing(shares, false, &packing, chunk, pack_counters + 1, &found);
    }
    if (!has_looked) {
      look_at_first(&s, x, &turns);
      fetch_lines(&reader, &s, false);
      barrier(CLK_LOCAL_MEM_FENCE);
      from = min(turns.from[0], turns.from[1]);
      has_looked = true;
    }
  } while (is_packing);
  float total[SUMS];
  #pragma unroll
  for (int i = 0; i < SUMS; i++) total[i] = 0.0f;
  if (from != 0) {
    wait_for_all(&packing, pack_counters + 1);
    multiply_chunks(total, false, &s, x, &reader, &feed, 0, memory, &turns);
    barrier(CLK_LOCAL_MEM_FENCE);
    from = min(turns.from[0], turns.from[1]);
  } else {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item % GROUP == 0) turns.from[item / GROUP] = 0;
  }
  if (from < s.depth) {
    reader = begin_reading(x, &s, true, from);
    fetch_lines(&reader, &s, true);
    packing.chunks = 2 * chunks, packing.packs = 2 * packs, packing.packed = packed + (long)packs * CHUNK_BYTES;
    if (item == 0) next_chunk = atomic_add(pack_counters + 2, 1);
    while (true) {
      const uint chunk = drawn_chunk(next_chunk, &found, &drawn);
      if (chunk >= packing.packs) break;
      float shares[SHARES_OF(true)][16];
      begin_packing(shares, true, &packing, chunk);
      see_shares(shares, true, &found);
      if (item == 0) next_chunk = atomic_add(pack_counters + 2, 1);
      end_packing(shares, true, &packing, chunk, pack_counters + 3, &found);
    }
    wait_for_all(&packing, pack_counters + 3);
    feed.from = packed + (packs + 2 * place + from / CHUNK_OF(true)) * CHUNK_BYTES;
    feed.ready += 8 * STAGES;
    multiply_chunks(total, true, &s, x, &reader, &feed, from, memory, &turns);
  }
  uint left = 0;
  if (item == 0) left = atomic_add(pack_counters + 4, 1);  // early, to hide its latency

  // The sums go to local memory, column by column.
  barrier(CLK_LOCAL_MEM_FENCE);
  __local float* tile_c = (__local float*)memory;
  #pragma unroll
  for (int i = 0; i < COLUMNS / 4; i++) {
    const float* sum = total + i / 2 * 4 + i % 2;
    *(__local float2*)(tile_c + first_row() + (i / 2 * 8 + item % 4 * 2 + i % 2) * PITCH_C) = (float2)(sum[0], sum[2]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  float4 four[OWN];
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) four[i] = *(__local const float4*)(tile_c + own_place(i));
#if FUSED_SPLIT_K
  // Fused split-k. The last work-group of a tile adds the slices up, always in the same order.
  __local uint earlier;
  const uint piece = matrix * (tiles_m * tiles_n) + tile;
  __global float4* slices_c = (__global float4*)slices_out + (long)piece * slices * FOURS;
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) slices_c[slice * FOURS + own_index(i)] = four[i];
  const bool is_last = comes_last(counters + PACK_COUNTERS + piece, slices, &earlier);
  clear_if_last(left, pack_counters);
  if (!is_last) return;
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) four[i] = slices_c[own_index(i)];
  #pragma unroll 1
  for (int first_slice = 1; first_slice < slices; first_slice += SLICES_AT_ONCE) {
    float4 more[SLICES_AT_ONCE][OWN];
    #pragma unroll
    for (int s = 0; s < SLICES_AT_ONCE; s++)
      #pragma unroll
      for (int i = 0; i < OWN; i++)
        if (first_slice + s < slices && is_own(i)) more[s][i] = slices_c[(first_slice + s) * FOURS + own_index(i)];
    #pragma unroll
    for (int s = 0; s < SLICES_AT_ONCE; s++)
      #pragma unroll
      for (int i = 0; i < OWN; i++)
        if (first_slice + s < slices && is_own(i)) four[i] += more[s][i];
  }
#else
  clear_if_last(left, pack_counters);
#endif
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) *(__local float4*)(tile_c + own_place(i)) = four[i];
  barrier(CLK_LOCAL_MEM_FENCE);

  // Store along the shorter stride of C.
  const bool along_rows = c_column * c_column <= c_row * c_row;
  for (int index = get_local_id(0); index < TILE_M * COLUMNS; index += ITEMS) {
    const int row = along_rows ? index / COLUMNS : index % TILE_M, column = along_rows ? index % COLUMNS : index / TILE_M;
    if (row < rows && column < columns)
      store_element(c + row * c_row + column * c_column, alpha * tile_c[column * PITCH_C + row], beta);
  }
}
