// Rung 10, any size: pad.wgsl pads A and B and copies C out; two tiles are used in turns, as in rung 9.
//   Here m, n and k are the padded sizes.
//   b_t[p*n + j]   n x k      tile_a[t % 2][p*TILE_M/4 + i/4]      tile_b[t % 2][p*TILE_N/4 + j/4]
// Workgroup: (TILE_M/WORK_M, TILE_N/WORK_N). Limits: none on the sizes before padding.
@group(0) @binding(0) var<uniform> size: vec4u;  // m, n, k
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b_t: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

const ITEMS_M = TILE_M / WORK_M;
const ITEMS_N = TILE_N / WORK_N;
const ITEMS = ITEMS_M * ITEMS_N;
const SIDE_M = TILE_M / 4;  // of A's tile, in vectors
const SIDE_N = TILE_N / 4;
const LOADS_A = SIDE_M * TILE_K / ITEMS;  // vectors of A's tile that an invocation loads
const LOADS_B = SIDE_N * TILE_K / ITEMS;
var<workgroup> tile_a: array<array<vec4f, TILE_K * SIDE_M>, 2>;
var<workgroup> tile_b: array<array<vec4f, TILE_K * SIDE_N>, 2>;

@compute @workgroup_size(ITEMS_M, ITEMS_N)
fn multiply(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) item: vec3u,
            @builtin(local_invocation_index) index: u32) {
  let row_0 = group.x * TILE_M;
  let column_0 = group.y * TILE_N;
  var sum: array<array<f32, WORK_N>, WORK_M>;
  var next_a: array<vec4f, LOADS_A>;
  var next_b: array<vec4f, LOADS_B>;
  var now = 0u;
  // One more turn than there are tiles: turn t loads tile t and multiplies tile t - 1.
  for (var depth = 0u; depth <= size.z; depth += TILE_K) {
    if (depth < size.z) {
      for (var load = 0u; load < LOADS_A; load++) {
        let vector = load * ITEMS + index;
        next_a[load] = a[(depth + vector / SIDE_M) * (size.x / 4) + row_0 / 4 + vector % SIDE_M];
      }
      for (var load = 0u; load < LOADS_B; load++) {
        let vector = load * ITEMS + index;
        next_b[load] = b_t[(depth + vector / SIDE_N) * (size.y / 4) + column_0 / 4 + vector % SIDE_N];
      }
    }
    if (depth > 0) {
      for (var p = 0u; p < TILE_K; p++) {
        var b_p: array<f32, WORK_N>;
        for (var j = 0u; j < WORK_N; j++) {
          let column = j * ITEMS_N + item.y;
          b_p[j] = tile_b[now][p * SIDE_N + column / 4][column % 4];
        }
        for (var i = 0u; i < WORK_M; i++) {
          let row = i * ITEMS_M + item.x;
          let a_p = tile_a[now][p * SIDE_M + row / 4][row % 4];
          for (var j = 0u; j < WORK_N; j++) { sum[i][j] += a_p * b_p[j]; }
        }
      }
    }
    now = 1 - now;
    for (var load = 0u; load < LOADS_A; load++) { tile_a[now][load * ITEMS + index] = next_a[load]; }
    for (var load = 0u; load < LOADS_B; load++) { tile_b[now][load * ITEMS + index] = next_b[load]; }
    workgroupBarrier();
  }
  for (var i = 0u; i < WORK_M; i++) {
    for (var j = 0u; j < WORK_N; j++) {
      c[(column_0 + j * ITEMS_N + item.y) * size.x + row_0 + i * ITEMS_M + item.x] = sum[i][j];
    }
  }
}
