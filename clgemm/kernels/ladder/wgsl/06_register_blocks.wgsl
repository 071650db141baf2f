// Rung 6, two-dimensional register blocks: WORK_M x WORK_N elements of C for each invocation.
//   b_t[p*n + j]   n x k      tile_a[p*TILE_M + i]      tile_b[p*TILE_N + j]
// Workgroup: (TILE_M/WORK_M, TILE_N/WORK_N). Limits: rung 5's.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b_t: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

const ITEMS_M = TILE_M / WORK_M;
const ITEMS_N = TILE_N / WORK_N;
const ITEMS = ITEMS_M * ITEMS_N;
const LOADS = TILE_M * TILE_K / ITEMS;  // elements of each tile that an invocation loads
var<workgroup> tile_a: array<f32, TILE_K * TILE_M>;
var<workgroup> tile_b: array<f32, TILE_K * TILE_N>;

@compute @workgroup_size(ITEMS_M, ITEMS_N)
fn multiply(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) item: vec3u,
            @builtin(local_invocation_index) index: u32) {
  let row_0 = group.x * TILE_M;
  let column_0 = group.y * TILE_N;
  var sum: array<array<f32, WORK_N>, WORK_M>;
  for (var depth = 0u; depth < size.z; depth += TILE_K) {
    for (var load = 0u; load < LOADS; load++) {
      let element = load * ITEMS + index;
      let p = element / TILE_M;
      let i = element % TILE_M;
      tile_a[element] = a[(depth + p) * size.x + row_0 + i];
      tile_b[element] = b_t[(depth + p) * size.y + column_0 + i];
    }
    workgroupBarrier();

    for (var p = 0u; p < TILE_K; p++) {
      var b_p: array<f32, WORK_N>;
      for (var j = 0u; j < WORK_N; j++) { b_p[j] = tile_b[p * TILE_N + j * ITEMS_N + item.y]; }
      for (var i = 0u; i < WORK_M; i++) {
        let a_p = tile_a[p * TILE_M + i * ITEMS_M + item.x];
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
