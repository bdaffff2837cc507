// y[m] = the row of x at the position of token m; zeros past the last row. Grid (VECS / THREADS, tokens).
#param VECS // vec4 of a row
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row
#param THREADS

struct Params {
  rows: u32, // of x
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
@bind var<storage, read> state: States;
@bind var<storage, read> x: array<vec4f>; // (rows, VECS)
@bind var<storage, read_write> y: array<vec4f>; // (tokens, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let c = id.x;
  let m = id.y;
  if (c >= VECS || m >= state.tokens[0].n) {
    return;
  }
  let row = select(state.tokens[0].pos + m, state.tokens[m].pos, STATE_PER_TOKEN == 1u);
  y[m * VECS + c] = select(vec4f(0), x[min(row, p.rows - 1u) * VECS + c], row < p.rows);
}
