// One row for the whole sequence, of the rows of its batches: their mean, the first or the last. A thread a column.
#param VECS // vectors of a row
#param KIND // "mean", "cls" or "last"

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> y: array<vec4f>; // (VECS): of the batches before this one, then with it

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let c = id.x;
  if (c >= VECS) {
    return;
  }
#if KIND == "mean"
  var sum = vec4f(0);
  for (var m = 0u; m < state.n; m++) {
    sum += x[m * VECS + c];
  }
  if (state.pos > 0) {
    sum += y[c] * f32(state.pos);
  }
  y[c] = sum / f32(state.pos + state.n);
#else
#if KIND == "cls"
  if (state.pos == 0) {
    y[c] = x[c];
  }
#else
  y[c] = x[(state.n - 1u) * VECS + c];
#endif
#endif
}
