// Stores the hidden states of each run's last RING tokens in the ring of its sequence, normalised: x[m] / rms * norm.
// Grid (tokens), a workgroup per row.
#param COLS // of a hidden state
#param RING // positions of a sequence in `ring`
#param WG
#param SG

struct Params {
  x_stride: u32,
  eps: f32,
}
#include "lib/runs.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> norm: array<f32>; // (COLS)
@bind var<storage, read_write> ring: array<f32>; // (sequences, RING, COLS)
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count() || run_end(m) > m + RING) {
    return;
  }
  var squares = 0.0;
  for (var i = t; i < COLS; i += WG) {
    let a = x[m * p.x_stride + i];
    squares += a * a;
  }
  let scale = inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
  let to = (seq_of(m) * RING + pos_of(m) % RING) * COLS;
  for (var i = t; i < COLS; i += WG) {
    ring[to + i] = x[m * p.x_stride + i] * scale * norm[i];
  }
}
