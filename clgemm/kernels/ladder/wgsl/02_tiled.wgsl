// Rung 2, tiling in workgroup memory: a workgroup loads tiles that all its invocations share.
//   tile_a[p*TILE + i]        tile_b[j*TILE + p]
// Workgroup: (TILE, TILE). Limits: m, n and k are multiples of TILE.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<f32, TILE * TILE>;
var<workgroup> tile_b: array<f32, TILE * TILE>;

@compute @workgroup_size(TILE, TILE)
fn multiply(@builtin(global_invocation_id) at: vec3u, @builtin(local_invocation_id) item: vec3u) {
  var sum = 0.0;
  for (var depth = 0u; depth < size.z; depth += TILE) {
    tile_a[item.y * TILE + item.x] = a[(depth + item.y) * size.x + at.x];
    tile_b[item.y * TILE + item.x] = b[at.y * size.z + depth + item.x];
    workgroupBarrier();  // the tiles are complete

    for (var p = 0u; p < TILE; p++) { sum += tile_a[p * TILE + item.x] * tile_b[item.y * TILE + p]; }
    workgroupBarrier();  // all invocations have read them
  }
  c[at.y * size.x + at.x] = sum;
}
