// Rung 1, naive: C = A*B by one invocation for each element of C.
//   a[p*m + i]   m x k        b[j*k + p]   k x n        c[j*m + i]   m x n
// Workgroup: (TILE, TILE). Limits: m and n are multiples of TILE.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(TILE, TILE)
fn multiply(@builtin(global_invocation_id) at: vec3u) {
  var sum = 0.0;
  for (var p = 0u; p < size.z; p++) { sum += a[p * size.x + at.x] * b[at.y * size.z + p]; }
  c[at.y * size.x + at.x] = sum;
}
