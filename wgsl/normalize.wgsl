// y[m] /= its Euclidean length; a row of zeros stays as it is. A workgroup per row.
#param COLS // columns of y that count
#param PITCH // columns of a row in memory
#param WG
#param SG

@bind var<storage, read_write> y: array<f32>; // (rows, PITCH)
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.x * PITCH;
  var squares = 0.0;
  for (var i = t; i < COLS; i += WG) {
    squares += y[first + i] * y[first + i];
  }
  let sum = workgroup_sum(squares, t);
  let scale = select(0.0, inverseSqrt(sum), sum > 0.0);
  for (var i = t; i < COLS; i += WG) {
    y[first + i] *= scale;
  }
}
