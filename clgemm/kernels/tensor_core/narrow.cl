// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 9.0, where B has few columns: A is read once,
// where it lies, and split in registers; only B is packed.
//   a[i*a_row + p*a_column]     m x k; columns are neighbours in memory with ALONG_K, otherwise rows are
//   b[p*b_row + j*b_column]     k x n, any strides
//   packed                      B's chunks by tensor_core/chunk.cl, in the order matrix, tile of columns, k: `packs` of them, of the
//                               matrices that b has (own_counts, own_strides) and not of their repetitions (packed_strides)
//   c[i*c_row + j*c_column]     m x n; not read when beta is 0
// Loads bring LOAD_A floats of A, to whose multiples its rows, strides and address are aligned.
//
// A work-group makes one tile of C, TILE_M x COLUMNS, for one slice of k. First work-groups draw chunks of B to pack until there
// are no more, and wait until all are packed. Then the PARTS warp groups of each take turns at the slice's chunks: work-items load
// what they will split of the next one of A, and fetch to the second-level cache what comes AHEAD turns later; the copy
// engine brings chunks of B to local memory. With x = h + l, for two tiles of 64 rows and half a chunk at a time,
//     sum   += high_a*low_b + low_a*high_b + high_a*high_b      wgmma, from zero for each chunk
//     total += sum                                              in registers
// There are no scales. Half a chunk with elements that cannot be split, tiny, huge, Inf or NaN, is multiplied plainly instead,
// in IEEE multiply-adds. kernels/tensor_core/README.md has the error bound.
//
//   tickets[0]    chunks that work-groups have taken to pack
//   tickets[1]    chunks that are packed
//   tickets[2]    work-groups that are done with tickets: the last one leaves zeros
// Slices are c_slice apart in c or, with GATHERS, in gathered, as split_k/fused.cl has it; its counters follow the tickets.
// Work-groups: matrices x slices x tiles of C, 128*PARTS work-items each. Local: PARTS*PART_BYTES.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions, asynchronous copies.
#ifndef PARTS
#error "PARTS: warp groups that share k"
#endif
#ifndef AHEAD
#error "AHEAD: turns from fetching a chunk of A to the second-level cache to loading it"
#endif
#ifndef LOAD_A
#error "LOAD_A: floats per load of A: 1, 2 or, with ALONG_K, 4"
#endif
#define TILE_M 128
#define SUMS (COLUMNS / 2)      // of each work-item, in a tile of 64 x COLUMNS
#define SPAN (ALONG_K ? 4 : 2)  // neighbours in memory that a work-item splits: of k, or rows
#define PITCH_C (TILE_M + 4)    // floats of a column of C in local memory: apart for the banks' sake
#define TILE_C_BYTES (4 * COLUMNS * PITCH_C)
#define STAGES 3                // chunks of B in local memory, for each warp group
#define TICKETS 3
#define PART_BYTES (STAGES * CHUNK_BYTES > TILE_C_BYTES ? STAGES * CHUNK_BYTES : TILE_C_BYTES)

// Load SPAN floats, LOAD_A at a time; zeros instead for those that are not there.
static inline void load(float* x, __global const float* from, const int there) {
  #pragma unroll
  for (int i = 0; i < SPAN; i += LOAD_A) {
    FLOAT(LOAD_A) values = (FLOAT(LOAD_A))(0.0f);
    if (there > i) values = LOAD_ALIGNED(LOAD_A, __global, from + i);
    STORE(LOAD_A, values, x + i);
  }
}

static inline void fetch_chunk(uint to, __global const uchar* chunk, uint barrier) {
  expect(barrier, CHUNK_BYTES);
  fetch(to, chunk, CHUNK_BYTES, barrier);
}

// Wait for the warp group at its own barrier; whether `mine` is not zero for any of its work-items.
static inline uint any_at_barrier(const uint id, const uint mine) {
  uint any;
  asm volatile("{.reg .pred mine, any; setp.ne.u32 mine, %1, 0; bar.red.or.pred any, %2, 128, mine; selp.u32 %0, 1, 0, any;}"
               : "=r"(any) : "r"(mine), "r"(id) : "memory");
  return any;
}

// Named barriers: each warp group's own, and its turn at the tensor cores.
#define OWN_BARRIER(part) (1 + (part))
#define TURN(part) (1 + PARTS + (part))

// sum += a*b for two tiles of 64 x COLUMNS x CHUNK/2: 12 instructions in one piece, since the compiler must not touch the sums
// before all is done. b is the descriptor of the high parts, without its upper half: it counts in sixteen bytes. Warp groups
// take turns: while one's products are made, the others split.
#define DISTANCE 8  // of runs of eight columns, 128/16
#define EIGHT(i)                                                              \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]),         \
  "+f"(sum[i + 4]), "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#if COLUMNS == 16
#define SUMS_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SUMS_1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define RESULTS EIGHT(0), EIGHT(8)
#define SHAPE "m64n16k8"
#elif COLUMNS == 32
#define SUMS_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
#define SHAPE "m64n32k8"
#else
#define SUMS_0                                                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                    \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SUMS_1                                                                \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"          \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#define SHAPE "m64n64k8"
#endif
#define WGMMA(sums, a)                                                        \
  "wgmma.mma_async.sync.aligned." SHAPE ".f32.tf32.tf32 {" sums "}, "         \
  "{%[" a "0],%[" a "1],%[" a "2],%[" a "3]}, b, yes, 1, 1;\n"
#define TIMES(step, a, part_b)                                                \
  "add.s32 place, %[b], " TEXT((step * 2 * PITCH + part_b) / 16) "; mov.b64 b, {place, apart};\n" \
  WGMMA(SUMS_0, a "0" #step) WGMMA(SUMS_1, a "1" #step)
#define FOUR(name, parts)                                                     \
  [name##0] "r"(parts[0]), [name##1] "r"(parts[1]), [name##2] "r"(parts[2]), [name##3] "r"(parts[3])
#define MULTIPLY(sum, high, low, tile_b, mine, next)                          \
  asm volatile("{.reg .b64 b; .reg .b32 place, apart; .reg .pred yes;\n"      \
               "setp.eq.b32 yes, %[b], %[b];\n"                               \
               "mov.b32 apart, " TEXT(DISTANCE) ";\n"                         \
               "bar.sync %[turn], 256;\n"                                     \
               "wgmma.fence.sync.aligned;\n"                                  \
               TIMES(0, "h", LOW_AT) TIMES(1, "h", LOW_AT)                    \
               TIMES(0, "l", 0) TIMES(1, "l", 0)                              \
               TIMES(0, "h", 0) TIMES(1, "h", 0)                              \
               "wgmma.commit_group.sync.aligned;\n"                           \
               "bar.arrive %[then], 256;\n"                                   \
               "wgmma.wait_group.sync.aligned 0;}\n"                          \
               : RESULTS                                                      \
               : FOUR(h00, high[0][0]), FOUR(h01, high[0][1]), FOUR(h10, high[1][0]), FOUR(h11, high[1][1]), \
                 FOUR(l00, low[0][0]), FOUR(l01, low[0][1]), FOUR(l10, low[1][0]), FOUR(l11, low[1][1]), \
                 [b] "r"(tile_b), [turn] "r"(mine), [then] "r"(next) : "memory")

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_narrow(const int m, const int n, const int k, const int slice_k, const int4 counts, const float alpha, const float beta,
                   __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
                   __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
                   __global uchar* packed, const long4 packed_strides, const int packs, const int4 own_counts, const long4 own_strides,
                   __global uint* tickets,
                   __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                   const long4 c_strides GATHER_ARGUMENTS) {
  __local uchar memory[PARTS * PART_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[PARTS * STAGES];
  __local uint drawn, odd_drawn;
  asm volatile(".target sm_90a");  // the compiler's own is sm_90: wgmma needs the a

  uint ticket = 0;
  if (get_local_id(0) == 0) ticket = atomic_add(tickets, 1);  // early, as this takes time
  const int chunks = (k + CHUNK - 1) / CHUNK;
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + COLUMNS - 1) / COLUMNS, slices = (k + slice_k - 1) / slice_k;
  const uint tile = get_group_id(0) % (tiles_m * tiles_n), result = get_group_id(0) / (tiles_m * tiles_n);
  const uint slice = result % slices, matrix = result / slices;
  const int row_0 = tile / tiles_n * TILE_M, tile_n = tile % tiles_n, column_0 = tile_n * COLUMNS;
  const int first = slice * slice_k, depth = min(slice_k, k - first);
  a += a_offset + matrix_offset(matrix, counts, a_strides) + row_0 * a_row + first * a_column;
  b += b_offset;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row_0 * c_row + column_0 * c_column + slice * c_slice;
  const int rows = m - row_0, columns = n - column_0;

  const int part = get_local_id(0) / GROUP, item = get_local_id(0) % GROUP;
  const int t = item % 4, my_row = item / 32 * 32 + item / 4 % 8 * 2;  // the first of two rows, for each of the tiles
  const int step = PARTS * CHUNK;
  __local uchar* own = memory + part * PART_BYTES;
  uint base = (uint)(ulong)own;
  asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(base));  // the same for all, as the compiler sees now
  const uint ready = (uint)(ulong)(barriers + part * STAGES);
  const uint tile_b = PITCH / 16 << 16 | base / 16;

  // Load this work-item's share of half the next chunk, of which `left` of k are there; and its line of a chunk further on.
#if ALONG_K
#define FROM(half_k, q) next + (q / 2 * 16 + q % 2) * a_row + half_k * 16  // of each tile two rows
#define THERE(half_k, q) my_row + q / 2 * 16 + q % 2 < rows ? left - half_k * 16 : 0
  __global const float* next = a + my_row * a_row + part * CHUNK + t * 4;
  __global const float* line = a + item * a_row + part * CHUNK;
  int left = depth - part * CHUNK - t * 4;
  int line_left = item < rows ? depth - part * CHUNK : 0;
#else
#define FROM(half_k, q) next + q / 4 * 16 + (half_k * 16 + q % 4 * 4) * a_column  // of each tile four of k
#define THERE(half_k, q) half_k * 16 + q % 4 * 4 < left ? rows - my_row - q / 4 * 16 : 0
  __global const float* next = a + my_row + (part * CHUNK + t) * a_column;
  __global const float* line = a + item % 4 * 32 + (part * CHUNK + item / 4) * a_column;
  int left = depth - part * CHUNK - t;
  int line_left = item % 4 * 32 < rows ? depth - part * CHUNK - item / 4 : 0;
#endif
#define LOAD_HALF(half_k) \
  _Pragma("unroll") for (int q = 0; q < 16 / SPAN; q++) load(&x[half_k][q * SPAN], FROM(half_k, q), THERE(half_k, q));
#define FETCH_LINE                                                            \
  line += step * a_column;                                                    \
  line_left -= step;                                                          \
  if (line_left > 0) asm volatile("prefetch.global.L2 [%0];" :: "l"(line));

  float x[2][16];
  LOAD_HALF(0)
  LOAD_HALF(1)
  #pragma unroll
  for (int turn = 1; turn < AHEAD; turn++) { FETCH_LINE }

  // Pack what is left of B to pack, and wait until all is. Who waits, waits for work-groups that have drawn before and so are
  // running: nobody can be kept waiting by one that has no place on the device.
  for (;;) {
    if (get_local_id(0) == 0) drawn = ticket;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint chunk = drawn;
    if (chunk >= packs) break;
    if (get_local_id(0) == 0) ticket = atomic_add(tickets, 1);
    const int k_0 = chunk % chunks * CHUNK, j_0 = chunk / chunks % tiles_n * COLUMNS;
    pack_chunk(b + matrix_offset(chunk / (chunks * tiles_n), own_counts, own_strides) + k_0 * b_row + j_0 * b_column, b_row, b_column,
               k - k_0, n - j_0, packed + (long)chunk * CHUNK_BYTES, &odd_drawn);
    fence_copies();
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) count_up(tickets + 1, 1);
  }
  if (get_local_id(0) == 0) {
    while (counted(tickets + 1) < packs) {}
    if (atomic_add(tickets + 2, 1) == get_num_groups(0) - 1) tickets[0] = tickets[1] = tickets[2] = 0;
  }
  if (item == 0) {
    for (int stage = 0; stage < STAGES; stage++) initialise(ready + 8 * stage, 1);
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  b += matrix_offset(matrix, counts, b_strides) + column_0 * b_column + first * b_row;
  packed += (matrix_offset(matrix, counts, packed_strides) + (long)tile_n * chunks + first / CHUNK + part) * CHUNK_BYTES;
  if (item == 0) {
    fence_copies();
    for (int stage = 0; stage < STAGES - 1; stage++)
      if (part * CHUNK + stage * step < depth)
        fetch_chunk(base + stage * CHUNK_BYTES, packed + (long)(stage * PARTS) * CHUNK_BYTES, ready + 8 * stage);
  }

  float total[2 * SUMS];
  #pragma unroll
  for (int i = 0; i < 2 * SUMS; i++) total[i] = 0.0f;

  const uint mine = TURN(part), others = TURN((part + 1) % PARTS);
  if (part == PARTS - 1) asm volatile("bar.arrive %0, 256;" :: "r"(others) : "memory");  // the first turn is the first's
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  #pragma unroll 1
  for (int start = 0; start < depth; start += step) {
    const int at = start + part * CHUNK;
    const bool has = at < depth;
    if (has) {
      FETCH_LINE
      wait_for(ready + 8 * stage, round);
    }
    next += step * a_column;
    left -= step;
    const uint odd_b = !has || *(__local const uint*)(own + stage * CHUNK_BYTES + ODD_AT);
    uint odd = 0;  // bits for halves of the chunk
    float sum[2 * SUMS];
    #pragma unroll
    for (int i = 0; i < 2 * SUMS; i++) sum[i] = 0.0f;
    #pragma unroll
    for (int half_k = 0; half_k < 2; half_k++) {
      Seen seen = {-1, 0.0f};
      uint high[2][2][4], low[2][2][4];
      #pragma unroll
      for (int i = 0; i < 16; i++) {  // four of k for each row of the tiles
        const int tile = i / 8, row = i / 4 % 2, j = i % 4;
        const float value = x[half_k][tile * 8 + (ALONG_K ? row * 4 + j : j * 2 + row)];
        see(&seen, value);
        split(value, &high[tile][j / 2][row + j % 2 * 2], &low[tile][j / 2][row + j % 2 * 2]);
      }
      LOAD_HALF(half_k)
      const uint odd_here = any_at_barrier(OWN_BARRIER(part), odd_b | is_odd(&seen));
      if (half_k == 0 && item == 0 && at + (STAGES - 1) * step < depth) {
        // Nobody reads the chunk before any more.
        const int other = stage == 0 ? STAGES - 1 : stage - 1;
        packed += PARTS * CHUNK_BYTES;
        fetch_chunk(base + other * CHUNK_BYTES, packed + (long)((STAGES - 2) * PARTS) * CHUNK_BYTES, ready + 8 * other);
      }
      if (odd_here == 0) {
        MULTIPLY(sum, high, low, tile_b + stage * (CHUNK_BYTES / 16) + half_k * (4 * PITCH / 16), mine, others);
      } else {
        asm volatile("bar.sync %0, 256; bar.arrive %1, 256;" :: "r"(mine), "r"(others) : "memory");
        odd |= 1 << half_k;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2 * SUMS; i++) total[i] += sum[i];
    if (odd != 0) {
      int last = columns - 1;
      asm volatile("" : "+r"(last));  // for the compiler to prepare nothing of this outside
      #pragma unroll 1
      for (int p = at; p < min(at + CHUNK, depth); p++) {
        if (!(odd >> (p - at) / 16 & 1)) continue;
        float values[4];
        #pragma unroll
        for (int r = 0; r < 4; r++) values[r] = a[min(my_row + r / 2 * 16 + r % 2, rows - 1) * a_row + p * a_column];
        #pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
          const float y = b[p * b_row + min(i / 2 * 8 + t * 2 + i % 2, last) * b_column];
          #pragma unroll
          for (int r = 0; r < 4; r++) {
            const int index = r / 2 * SUMS + i / 2 * 4 + r % 2 * 2 + i % 2;
            total[index] = fma(values[r], y, total[index]);
          }
        }
      }
    }
    if (++stage == STAGES) stage = 0, round ^= 1;
  }

  // Through local memory, column by column.
  barrier(CLK_LOCAL_MEM_FENCE);
  __local float* tile_c = (__local float*)memory;
  __local float* tile_own = (__local float*)own + my_row;
  #pragma unroll
  for (int i = 0; i < COLUMNS / 2; i++) {
    const float* sum = total + i / (COLUMNS / 4) * SUMS + i / 2 % (COLUMNS / 8) * 4 + i % 2;
    *(__local float2*)(tile_own + (i / 2 % (COLUMNS / 8) * 8 + t * 2 + i % 2) * PITCH_C + i / (COLUMNS / 4) * 16) = (float2)(sum[0], sum[2]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#define FOURS (COLUMNS * TILE_M / 4)
#define EACH ((FOURS + ITEMS - 1) / ITEMS)  // of a work-item, ITEMS apart
#define INDEX(i) ((i) * ITEMS + (int)get_local_id(0))
#define PLACE(i) (INDEX(i) / (TILE_M / 4) * PITCH_C + INDEX(i) % (TILE_M / 4) * 4)
#define FOR_EACH _Pragma("unroll") for (int i = 0; i < EACH; i++) if (FOURS % ITEMS == 0 || INDEX(i) < FOURS)
  float4 four[EACH];
  FOR_EACH {
    four[i] = *(__local const float4*)(tile_c + PLACE(i));
    #pragma unroll
    for (int other = 1; other < PARTS; other++) four[i] += *(__local const float4*)(tile_c + other * (PART_BYTES / 4) + PLACE(i));
  }
#if GATHERS
  // Slices are written like this; the last work-group of a tile adds them up, in their order.
  __local uint earlier;
  const uint piece = matrix * (tiles_m * tiles_n) + tile;
  __global float4* slices_c = (__global float4*)gathered + (long)piece * slices * FOURS;
  FOR_EACH slices_c[slice * FOURS + INDEX(i)] = four[i];
  if (!comes_last(counters + TICKETS + piece, slices, &earlier)) return;
  FOR_EACH four[i] = slices_c[INDEX(i)];
  #pragma unroll 1
  for (int other = 1; other < slices; other += 4) {  // four at a time are on their way
    float4 more[4][EACH];
    #pragma unroll
    for (int next = 0; next < 4; next++)
      if (other + next < slices) FOR_EACH more[next][i] = slices_c[(other + next) * FOURS + INDEX(i)];
    #pragma unroll
    for (int next = 0; next < 4; next++)
      if (other + next < slices) FOR_EACH four[i] += more[next][i];
  }
#endif
  FOR_EACH *(__local float4*)(tile_c + PLACE(i)) = four[i];
  barrier(CLK_LOCAL_MEM_FENCE);

  // The epilogue, along the shorter stride of C.
  const bool along_rows = c_column * c_column <= c_row * c_row;
  for (int index = get_local_id(0); index < TILE_M * COLUMNS; index += ITEMS) {
    const int row = along_rows ? index / COLUMNS : index % TILE_M, column = along_rows ? index % COLUMNS : index / TILE_M;
    if (row < rows && column < columns) {
      __global float* element = c + row * c_row + column * c_column;
      const float product = alpha * tile_c[column * PITCH_C + row];
      *element = beta == 0.0f ? product : product + beta * *element;
    }
  }
}
