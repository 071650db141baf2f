// Rung 3, more work per invocation: WORK_N columns of C instead of one.
//   tile_a[p*TILE + i]        tile_b[j*TILE + p]
// Workgroup: (TILE, TILE/WORK_N). Limits: m, n and k are multiples of TILE.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

const ITEMS_N = TILE / WORK_N;
var<workgroup> tile_a: array<f32, TILE * TILE>;
var<workgroup> tile_b: array<f32, TILE * TILE>;

@compute @workgroup_size(TILE, ITEMS_N)
fn multiply(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) item: vec3u) {
  let row = group.x * TILE + item.x;
  let column_0 = group.y * TILE;
  var sum: array<f32, WORK_N>;
  for (var depth = 0u; depth < size.z; depth += TILE) {
    for (var column = item.y; column < TILE; column += ITEMS_N) {
      tile_a[column * TILE + item.x] = a[(depth + column) * size.x + row];
      tile_b[column * TILE + item.x] = b[(column_0 + column) * size.z + depth + item.x];
    }
    workgroupBarrier();

    for (var p = 0u; p < TILE; p++) {
      let a_p = tile_a[p * TILE + item.x];
      for (var j = 0u; j < WORK_N; j++) { sum[j] += a_p * tile_b[(j * ITEMS_N + item.y) * TILE + p]; }
    }
    workgroupBarrier();
  }
  for (var j = 0u; j < WORK_N; j++) { c[(column_0 + j * ITEMS_N + item.y) * size.x + row] = sum[j]; }
}
