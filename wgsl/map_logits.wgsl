// The logits of a model's tokens from those of a draft model that knows some of them (plan/mtp.py):
// y[m][t] = x[m][rows[t]], or that of a token that is never sampled where the draft model has no such row.
// Grid (COLS / THREADS, tokens).
#param COLS // tokens of the model
#param ROWS // tokens of the draft model
#param BANNED
#param THREADS

struct Params {
  x_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> rows: array<u32>; // (COLS): of each token
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < COLS) {
    let row = rows[id.x];
    y[id.y * p.y_stride + id.x] = select(BANNED, x[id.y * p.x_stride + min(row, ROWS - 1u)], row < ROWS);
  }
}
