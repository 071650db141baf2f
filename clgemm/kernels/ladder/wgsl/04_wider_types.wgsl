// Rung 4, wider data types: invocations read and write vectors of four floats.
//   tile_a[p*TILE/4 + i/4]    tile_b[j*TILE/4 + p/4]    vectors along i, and along p
// Workgroup: (TILE/4, TILE). Limits: m, n and k are multiples of TILE.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4f>;

const SIDE = TILE / 4;  // of a tile, in vectors
var<workgroup> tile_a: array<vec4f, TILE * SIDE>;
var<workgroup> tile_b: array<vec4f, TILE * SIDE>;

@compute @workgroup_size(SIDE, TILE)
fn multiply(@builtin(global_invocation_id) at: vec3u, @builtin(local_invocation_id) item: vec3u) {
  var sum = vec4f();
  for (var depth = 0u; depth < size.z; depth += TILE) {
    tile_a[item.y * SIDE + item.x] = a[(depth + item.y) * (size.x / 4) + at.x];
    tile_b[item.y * SIDE + item.x] = b[at.y * (size.z / 4) + depth / 4 + item.x];
    workgroupBarrier();

    for (var p = 0u; p < TILE; p++) {
      sum += tile_a[p * SIDE + item.x] * tile_b[item.y * SIDE + p / 4][p % 4];
    }
    workgroupBarrier();
  }
  c[at.y * (size.x / 4) + at.x] = sum;
}
