// y /= its Euclidean length; a row of zeros stays as it is. One workgroup.
#param COLS // columns of y
#param WG
#param SG

@bind var<storage, read_write> y: array<f32>; // (COLS padded)
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  var squares = 0.0;
  for (var i = t; i < COLS; i += WG) {
    squares += y[i] * y[i];
  }
  let sum = workgroup_sum(squares, t);
  let scale = select(0.0, inverseSqrt(sum), sum > 0.0);
  for (var i = t; i < COLS; i += WG) {
    y[i] *= scale;
  }
}
