// Copies a matrix into a larger one with zeros around it, and the corner of a larger one back.
//   from[j*rows + i]   rows x columns        to[j*padded_rows + i]   padded_rows x padded_columns
// Workgroup: (SQUARE, SQUARE). Limits: none on the sizes.
@group(0) @binding(0) var<uniform> size: vec4u;  // rows, columns, padded rows, padded columns
@group(0) @binding(1) var<storage, read> from_: array<f32>;
@group(0) @binding(2) var<storage, read_write> to: array<f32>;

@compute @workgroup_size(SQUARE, SQUARE)
fn pad(@builtin(global_invocation_id) at: vec3u) {
  if (at.x < size.z && at.y < size.w) {
    var value = 0.0;
    if (at.x < size.x && at.y < size.y) { value = from_[at.y * size.x + at.x]; }
    to[at.y * size.z + at.x] = value;
  }
}

@compute @workgroup_size(SQUARE, SQUARE)
fn unpad(@builtin(global_invocation_id) at: vec3u) {
  if (at.x < size.x && at.y < size.y) { to[at.y * size.x + at.x] = from_[at.y * size.z + at.x]; }
}
