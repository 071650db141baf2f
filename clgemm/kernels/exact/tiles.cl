// C = A B from panels, or C = C + A B with `adds`, as product.cl does, on devices whose hardware spreads
// work-items over lanes.
//   a[(panel*depth + p)*TILE + i]   row panel*TILE + i of A, step p; `depth` is a multiple of STEPS
//   b[(panel*depth + p)*TILE + j]   column panel*TILE + j of B, step p
//   c[i*c_row + j*c_column]         m x n
// With TRIANGLE these are rows of a square C from one on its diagonal on, and B is A's transpose: `a` has all panels of B, and
// `above` of them come before those of these rows. Otherwise `above` is 0.
// A work-group computes TILE x TILE of C, a work-item WORK x WORK of that. STEPS of k lie in local memory
// while the next ones come into registers. The rows of a work-item are runs of WIDTH, with those of the
// other work-items in between, so that neighbours read neighbours; so are its columns.
// Work-groups: matrices x panels of A x panels of B. Local: 4*STEPS*TILE lanes.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernels 6, 7 and 9.
#ifndef TILE
#error "TILE: rows and columns of C of a work-group"
#endif
#ifndef WORK
#error "WORK: rows and columns of C of a work-item"
#endif
#ifndef STEPS
#error "STEPS: steps over k in local memory"
#endif
#ifndef UNROLL
#error "UNROLL: of these steps"
#endif
#ifndef WIDTH
#error "WIDTH: lanes of a load"
#endif
#define ACROSS (TILE / WORK)
#define ITEMS (ACROSS * ACROSS)
#define LOADS (STEPS * TILE / (ITEMS * WIDTH))  // of each work-item, from each operand
#define RUNS (WORK / WIDTH)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void exact_tiles(const int m, const int n, const int depth, const int adds, const int swizzle, const int above,
                 const int4 counts,
                 __global const LANE_TYPE* restrict a, __global const LANE_TYPE* restrict b,
                 __global STORED_TYPE* restrict c, const long c_offset, const long c_row, const long c_column,
                 const long4 c_strides) {
  __local LANES(WIDTH) blocks_a[2][STEPS * TILE / WIDTH], blocks_b[2][STEPS * TILE / WIDTH];
  const int panels_m = (m + TILE - 1) / TILE, panels_n = (n + TILE - 1) / TILE;
  const int panels_a = TRIANGLE ? panels_n : panels_m, tiles = tiles_of_rows(panels_m, panels_n - above, TILE, TILE);
  const uint group = get_group_id(0), matrix = group / tiles;
  Place place = swizzled(group % tiles, panels_m, panels_n - above, swizzle, TILE, TILE);
  place.n += above;
  const int item = get_local_id(0), item_m = item / ACROSS, item_n = item % ACROSS;
  __global const LANES(WIDTH)* from_a =
      (__global const LANES(WIDTH)*)(a + ((long)matrix * panels_a + above + place.m) * depth * TILE) + item;
  __global const LANES(WIDTH)* from_b =
      (__global const LANES(WIDTH)*)(b + ((long)matrix * panels_n + place.n) * depth * TILE) + item;
  LANES(WIDTH) sum[WORK][RUNS], next_a[LOADS], next_b[LOADS];
  #pragma unroll
  for (int i = 0; i < WORK; i++) {
    #pragma unroll
    for (int j = 0; j < RUNS; j++) sum[i][j] = (LANES(WIDTH))(0);
  }
  #pragma unroll
  for (int i = 0; i < LOADS; i++) {
    blocks_a[0][item + i * ITEMS] = from_a[i * ITEMS];
    blocks_b[0][item + i * ITEMS] = from_b[i * ITEMS];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int p = STEPS, now = 0; p <= depth; p += STEPS, now = 1 - now) {
    if (p < depth) {
      from_a += STEPS * TILE / WIDTH;
      from_b += STEPS * TILE / WIDTH;
      #pragma unroll
      for (int i = 0; i < LOADS; i++) {
        next_a[i] = from_a[i * ITEMS];
        next_b[i] = from_b[i * ITEMS];
      }
    }
    #pragma unroll UNROLL
    for (int step = 0; step < STEPS; step++) {
      LANE_TYPE column[WORK];
      LANES(WIDTH) row[RUNS];
      #pragma unroll
      for (int i = 0; i < RUNS; i++) {
        STORE(WIDTH, blocks_a[now][step * (TILE / WIDTH) + i * ACROSS + item_m], column + i * WIDTH);
        row[i] = blocks_b[now][step * (TILE / WIDTH) + i * ACROSS + item_n];
      }
      #pragma unroll
      for (int i = 0; i < WORK; i++) {
        #pragma unroll
        for (int j = 0; j < RUNS; j++) sum[i][j] = ADD((LANES(WIDTH))(column[i]), row[j], sum[i][j]);
      }
    }
    if (p < depth) {
      #pragma unroll
      for (int i = 0; i < LOADS; i++) {
        blocks_a[1 - now][item + i * ITEMS] = next_a[i];
        blocks_b[1 - now][item + i * ITEMS] = next_b[i];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
  c += PARTS * (c_offset + matrix_offset(matrix, counts, c_strides));
  #pragma unroll
  for (int i = 0; i < WORK; i++) {
    const int row = place.m * TILE + (i / WIDTH * ACROSS + item_m) * WIDTH + i % WIDTH;
    #pragma unroll
    for (int j = 0; j < RUNS; j++) {
      LANE_TYPE values[WIDTH];
      STORE(WIDTH, sum[i][j], values);
      #pragma unroll
      for (int x = 0; x < WIDTH; x++) {
        const int column = place.n * TILE + (j * ACROSS + item_n) * WIDTH + x;
        if (row < m && column < n) store_lane(c, PLACE_OF(row, column), values[x], adds);
      }
    }
  }
}
