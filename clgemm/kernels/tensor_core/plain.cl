// The last method of tensor_core/methods.cl: C = alpha*A*B + beta*C in IEEE single precision. Operands are read in place and
// have any strides.
//
// The third warp group copies PLAIN_M rows of A and PLAIN_N columns of B, PLAIN_K of k at a time, to local memory
// (feed_plain), with zeros past the edges, up to PLAIN_STAGES ahead. The other two compute a tile of C (multiply_plain).
// PLAIN_PARTS work-items compute the same PLAIN_WORK_M x 8 elements and share the steps over k; their sums are then added
// up through local memory. Tiles are cut along k as in tensor_core/warp_groups.cl.
#ifndef PLAIN_M
#error "PLAIN_M: rows of C per tile"
#endif
#ifndef PLAIN_N
#error "PLAIN_N: columns of C per tile"
#endif
#ifndef PLAIN_K
#error "PLAIN_K: depth of a tile"
#endif
#define PLAIN_STAGES 6
#define PLAIN_PARTS 2
#define PLAIN_BLOCKS (256 / PLAIN_PARTS)                                // blocks of registers, which cover the tile
#define PLAIN_WORK_M (PLAIN_M * PLAIN_N / 8 / PLAIN_BLOCKS)
#define PLAIN_ITEMS_M (PLAIN_M / PLAIN_WORK_M)
#define PLAIN_CHUNKS (PLAIN_WORK_M / 4)
#define PLAIN_STEPS (PLAIN_K / PLAIN_PARTS)
// Rows in local memory lie one vector further apart, against bank conflicts.
#define PITCH_A (PLAIN_M + 4)
#define PITCH_B (PLAIN_N + 4)
#define PITCH_C (PLAIN_N + 4)
#define PLAIN_VECTORS (PLAIN_M * PLAIN_N / 4)          // of a tile of C
#define PLAIN_FLOATS (PLAIN_K * (PITCH_A + PITCH_B))   // floats of a stage
#define PLAIN_BYTES (4 * PLAIN_STAGES * PLAIN_FLOATS)  // more than the sums of a tile of C take
#define PLAIN_MOST_VECTORS ((PLAIN_M > PLAIN_N ? PLAIN_M : PLAIN_N) * PLAIN_K / 4 / FEEDERS)  // of a work-item
#define FEEDERS 128                                    // work-items that copy

static inline void copy_float(__local float* to, __global const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"((uint)(ulong)to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

static inline void copy_vector(__local float* to, __global const float* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((uint)(ulong)to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Copy `rows` rows of an operand, PLAIN_K of k, from `from` to local memory, where rows are contiguous. Of the source
// rows_here x depth_here elements exist: past k are zeros; past the last row is anything, for elements of C that are not
// stored. `rows` is a constant.
static inline __attribute__((always_inline)) void feed_panel(
    const int rows, __local float* to, const int pitch, __global const float* from, const long row_stride,
    const long column_stride, const int rows_here, const int depth_here) {
  const int me = get_local_id(0) - 256, vectors = rows * PLAIN_K / 4 / FEEDERS;  // those that a work-item copies
  const bool aligned = ((ulong)from & 15) == 0;
  if (aligned && row_stride == 1 && column_stride % 4 == 0 && rows_here >= rows) {  // by vectors
    const int row = me % (rows / 4) * 4, depth = me / (rows / 4), apart = FEEDERS / (rows / 4);
    from += row + depth * column_stride;
    #pragma unroll
    for (int i = 0; i < vectors; i++, from += apart * column_stride)
      copy_vector(to + (depth + i * apart) * pitch + row, from, depth + i * apart < depth_here);
  } else if (aligned && column_stride == 1 && row_stride % 4 == 0 && depth_here >= PLAIN_K) {  // transposed
    const int row = me / 4, depth = me % 4 * 4;
    float4 v[PLAIN_MOST_VECTORS];
    #pragma unroll
    for (int i = 0; i < vectors; i++)
      v[i] = *(__global const float4*)(from + min(row + i / 2 * 32, rows_here - 1) * row_stride + depth + i % 2 * 16);
    #pragma unroll
    for (int i = 0; i < vectors; i++) {
      __local float* own = to + (depth + i % 2 * 16) * pitch + row + i / 2 * 32;
      own[0] = v[i].x, own[pitch] = v[i].y, own[2 * pitch] = v[i].z, own[3 * pitch] = v[i].w;
    }
  } else if (column_stride * column_stride <= row_stride * row_stride) {  // by elements, along k
    // A warp copies 8 of k of four rows at once: to different banks of local memory.
    const int row = me / 8 % 4, depth = me / 32 * 8 + me % 8;
    from += row * row_stride + depth * column_stride;
    #pragma unroll 4
    for (int r = row; r < rows; r += 4, from += 4 * row_stride)
      copy_float(to + depth * pitch + r, from, depth < depth_here && r < rows_here);
  } else {  // by elements, along the rows
    const int row = me % rows, depth = me / rows, apart = FEEDERS / rows;
    from += row * row_stride + depth * column_stride;
    #pragma unroll 4
    for (int d = depth; d < PLAIN_K; d += apart, from += apart * column_stride)
      copy_float(to + d * pitch + row, from, d < depth_here && row < rows_here);
  }
}

static inline int plain_depths(const Product* p) { return (p->k + PLAIN_K - 1) / PLAIN_K; }

// The tiles of C in a matrix. They are numbered down its columns, one matrix after another.
static inline int plain_tiles(const Product* p) {
  return ((p->m + PLAIN_M - 1) / PLAIN_M) * ((p->n + PLAIN_N - 1) / PLAIN_N);
}

static inline Place place_of_plain(const Product* p, const int tile) {
  const int tiles_m = (p->m + PLAIN_M - 1) / PLAIN_M, here = tile % plain_tiles(p);
  const Place place = {here % tiles_m, here / tiles_m};
  return place;
}

// A tile of C has been stored: only then are the stages filled again, through which its sums were added up.
static inline void end_tile(void) { asm volatile("bar.sync 3, 384;" ::: "memory"); }

static inline void feed_plain(const Product* p, const Cuts* cuts, __local uchar* memory) {
  const int tiles = p->matrices * plain_tiles(p);
  const uint base = (uint)(ulong)memory;
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  for (int index = get_group_id(0); index < parts_of(cuts, tiles); index += get_num_groups(0)) {
    const Part part = part_of(cuts, tiles, plain_depths(p), index);
    const Place place = place_of_plain(p, part.tile);
    const int matrix = part.tile / plain_tiles(p), row_0 = place.m * PLAIN_M, column_0 = place.n * PLAIN_N;
    const int rows = p->m - row_0, columns = p->n - column_0;
    __global const float* a = p->a + matrix * p->a_stride + row_0 * p->a_row + part.first * PLAIN_K * p->a_column;
    __global const float* b = p->b + matrix * p->b_stride + column_0 * p->b_row + part.first * PLAIN_K * p->b_column;
    #pragma unroll 1
    for (int depth = part.first; depth < part.end; depth++) {
      __local float* to = (__local float*)(memory + BARRIERS_BYTES) + stage * PLAIN_FLOATS;
      const int left = p->k - depth * PLAIN_K;
      wait_for(EMPTY(stage), round ^ 1);
      feed_panel(PLAIN_M, to, PITCH_A, a, p->a_row, p->a_column, rows, left);
      feed_panel(PLAIN_N, to + PLAIN_K * PITCH_A, PITCH_B, b, p->b_row, p->b_column, columns, left);
      // Two arrivals: for the stores, and for the copies when they are done.
      arrive(FULL(stage));
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(FULL(stage)) : "memory");
      a += PLAIN_K * p->a_column;
      b += PLAIN_K * p->b_column;
      next_stage(&stage, &round, PLAIN_STAGES);
    }
    end_tile();
  }
}

// Four neighbours of a tile of C: the sums of one part, and those of all.
static inline __local float4* part_of_sum(__local float* sums, const int part, const int i) {
  return (__local float4*)(sums + (part * PLAIN_M + i / (PLAIN_N / 4)) * PITCH_C + i % (PLAIN_N / 4) * 4);
}

static inline float4 sum_of_parts(__local float* sums, const int i) {
  float4 result = (float4)(0.0f);
  #pragma unroll
  for (int part = 0; part < PLAIN_PARTS; part++) result += *part_of_sum(sums, part, i);
  return result;
}

static inline void multiply_plain(const Product* p, const Cuts* cuts, const float alpha, const float beta, __global float* c,
                                  const long c_row, const long c_column, const long c_stride, __local uchar* memory,
                                  __local uint* earlier) {
  const int tiles = p->matrices * plain_tiles(p);
  const uint base = (uint)(ulong)memory;
  const int item = get_local_id(0), lane = item % 32, mine = item / PLAIN_BLOCKS, block = item % PLAIN_BLOCKS;
  // A warp has 8 x 4 blocks.
  const int y = block / 32 * 8 % PLAIN_ITEMS_M + block % 32 / 4, x = block / 32 * 8 / PLAIN_ITEMS_M * 4 + block % 4;
  __local float* panels = (__local float*)(memory + BARRIERS_BYTES);
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  for (int index = get_group_id(0); index < parts_of(cuts, tiles); index += get_num_groups(0)) {
    const Part part = part_of(cuts, tiles, plain_depths(p), index);
    const Place place = place_of_plain(p, part.tile);
    const int row_0 = place.m * PLAIN_M, column_0 = place.n * PLAIN_N;
    const int rows = p->m - row_0, columns = p->n - column_0;
    float4 sum[PLAIN_WORK_M][2];
    #pragma unroll
    for (int i = 0; i < PLAIN_WORK_M; i++) sum[i][0] = sum[i][1] = (float4)(0.0f);

    #pragma unroll 1
    for (int depth = part.first; depth < part.end; depth++) {
      __local const float* row_a = panels + stage * PLAIN_FLOATS + mine * PLAIN_STEPS * PITCH_A + y * 4;
      __local const float* row_b = panels + stage * PLAIN_FLOATS + PLAIN_K * PITCH_A + mine * PLAIN_STEPS * PITCH_B + x * 4;
      wait_for(FULL(stage), round);
      #pragma unroll
      for (int step = 0; step < PLAIN_STEPS; step++) {
        const float4 b_0 = *(__local const float4*)(row_b + step * PITCH_B);
        const float4 b_1 = *(__local const float4*)(row_b + step * PITCH_B + PLAIN_N / 2);
        #pragma unroll
        for (int i = 0; i < PLAIN_CHUNKS; i++) {
          const float4 a = *(__local const float4*)(row_a + step * PITCH_A + i * PLAIN_ITEMS_M * 4);
          sum[4 * i][0] = fma((float4)(a.x), b_0, sum[4 * i][0]);
          sum[4 * i][1] = fma((float4)(a.x), b_1, sum[4 * i][1]);
          sum[4 * i + 1][0] = fma((float4)(a.y), b_0, sum[4 * i + 1][0]);
          sum[4 * i + 1][1] = fma((float4)(a.y), b_1, sum[4 * i + 1][1]);
          sum[4 * i + 2][0] = fma((float4)(a.z), b_0, sum[4 * i + 2][0]);
          sum[4 * i + 2][1] = fma((float4)(a.z), b_1, sum[4 * i + 2][1]);
          sum[4 * i + 3][0] = fma((float4)(a.w), b_0, sum[4 * i + 3][0]);
          sum[4 * i + 3][1] = fma((float4)(a.w), b_1, sum[4 * i + 3][1]);
        }
      }
      if (lane == 0) arrive(EMPTY(stage));
      next_stage(&stage, &round, PLAIN_STAGES);
    }

    multiply_barrier();  // the stages have been read
    #pragma unroll
    for (int i = 0; i < PLAIN_WORK_M; i++) {
      const int row = i / 4 * PLAIN_ITEMS_M * 4 + y * 4 + i % 4;
      __local float* own = panels + (mine * PLAIN_M + row) * PITCH_C + x * 4;
      *(__local float4*)own = sum[i][0];
      *(__local float4*)(own + PLAIN_N / 2) = sum[i][1];
    }
    multiply_barrier();
    if (part.tile >= cuts->whole) {
      __global float4* slices = slices_of(cuts, &part, PLAIN_VECTORS);
      // Kept in registers, they would make the loop above slower.
      #pragma unroll 4
      for (int i = item; i < PLAIN_VECTORS; i += 256) slices[part.slice * PLAIN_VECTORS + i] = sum_of_parts(panels, i);
      if (!comes_last(cuts, &part, earlier)) {
        end_tile();
        continue;
      }
      #pragma unroll 1
      for (int i = item; i < PLAIN_VECTORS; i += 256) {
        float4 all = (float4)(0.0f);
        #pragma unroll 4
        for (int slice = 0; slice < cuts->slices; slice++) all += slices[slice * PLAIN_VECTORS + i];
        *part_of_sum(panels, 0, i) = all;
        #pragma unroll
        for (int other = 1; other < PLAIN_PARTS; other++) *part_of_sum(panels, other, i) = (float4)(0.0f);
      }
    }
    __global float* c_tile = c + part.tile / plain_tiles(p) * c_stride + row_0 * c_row + column_0 * c_column;
    const bool vectors = c_column == 1 && c_row % 4 == 0 && ((ulong)c_tile & 15) == 0;
    #pragma unroll 2
    for (int i = item; i < PLAIN_VECTORS; i += 256) {
      const int row = i / (PLAIN_N / 4), column = i % (PLAIN_N / 4) * 4;
      const float4 result = alpha * sum_of_parts(panels, i);
      __global float* element = c_tile + row * c_row + column * c_column;
      if (row < rows && vectors && column + 4 <= columns) {
        STORE_ALIGNED(4)((__global float4*)element, result, beta);
      } else if (row < rows) {
        const float values[4] = {result.x, result.y, result.z, result.w};
        #pragma unroll
        for (int v = 0; v < 4; v++)
          if (column + v < columns) store_element(element + v * c_column, values[v], beta);
      }
    }
    end_tile();
  }
}
