// Transposes a matrix into another buffer, for rungs 5, 6, 7 and 10.
//   from[j*rows + i]   rows x columns        to[i*columns + j]   columns x rows
// Workgroup: (SQUARE, SQUARE). Limits: none on the sizes.
@group(0) @binding(0) var<uniform> size: vec4u;  // rows, columns
@group(0) @binding(1) var<storage, read> from_: array<f32>;
@group(0) @binding(2) var<storage, read_write> to: array<f32>;

const PITCH = SQUARE + 1;  // puts the elements of a row into different banks
var<workgroup> tile: array<f32, SQUARE * PITCH>;

@compute @workgroup_size(SQUARE, SQUARE)
fn transpose(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) item: vec3u) {
  let row_0 = group.x * SQUARE;
  let column_0 = group.y * SQUARE;
  if (row_0 + item.x < size.x && column_0 + item.y < size.y) {
    tile[item.y * PITCH + item.x] = from_[(column_0 + item.y) * size.x + row_0 + item.x];
  }
  workgroupBarrier();
  if (row_0 + item.y < size.x && column_0 + item.x < size.y) {
    to[(row_0 + item.y) * size.y + column_0 + item.x] = tile[item.x * PITCH + item.y];
  }
}
