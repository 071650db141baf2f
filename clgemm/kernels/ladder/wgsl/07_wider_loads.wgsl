// Rung 7, wider loads with register blocks: rung 6 with vectors of four floats for the tiles.
//   b_t[p*n + j]   n x k      tile_a[p*TILE_M/4 + i/4]  tile_b[p*TILE_N/4 + j/4]
// Workgroup: (TILE_M/WORK_M, TILE_N/WORK_N). Limits: rung 5's; TILE_M is a multiple of 4.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b_t: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

const ITEMS_M = TILE_M / WORK_M;
const ITEMS_N = TILE_N / WORK_N;
const ITEMS = ITEMS_M * ITEMS_N;
const SIDE = TILE_M / 4;  // of a tile, in vectors
const LOADS = SIDE * TILE_K / ITEMS;  // vectors of each tile that an invocation loads
var<workgroup> tile_a: array<vec4f, TILE_K * SIDE>;
var<workgroup> tile_b: array<vec4f, TILE_K * SIDE>;

@compute @workgroup_size(ITEMS_M, ITEMS_N)
fn multiply(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) item: vec3u,
            @builtin(local_invocation_index) index: u32) {
  let row_0 = group.x * TILE_M;
  let column_0 = group.y * TILE_N;
  var sum: array<array<f32, WORK_N>, WORK_M>;
  for (var depth = 0u; depth < size.z; depth += TILE_K) {
    for (var load = 0u; load < LOADS; load++) {
      let vector = load * ITEMS + index;
      let p = vector / SIDE;
      let i = vector % SIDE;
      tile_a[vector] = a[(depth + p) * (size.x / 4) + row_0 / 4 + i];
      tile_b[vector] = b_t[(depth + p) * (size.y / 4) + column_0 / 4 + i];
    }
    workgroupBarrier();

    for (var p = 0u; p < TILE_K; p++) {
      var b_p: array<f32, WORK_N>;
      for (var j = 0u; j < WORK_N; j++) {
        let column = j * ITEMS_N + item.y;
        b_p[j] = tile_b[p * SIDE + column / 4][column % 4];
      }
      for (var i = 0u; i < WORK_M; i++) {
        let row = i * ITEMS_M + item.x;
        let a_p = tile_a[p * SIDE + row / 4][row % 4];
        for (var j = 0u; j < WORK_N; j++) { sum[i][j] += a_p * b_p[j]; }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < WORK_M; i++) {
    for (var j = 0u; j < WORK_N; j++) {
      c[(column_0 + j * ITEMS_N + item.y) * size.x + row_0 + i * ITEMS_M + item.x] = sum[i][j];
    }
  }
}
