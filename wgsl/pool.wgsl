// y = mean over m of x[m] (KIND "mean"), x[0] ("cls") or the last x[m] ("last"), over all batches of a sequence.
// Grid (VECS / THREADS).
#param VECS // vec4 of a row
#param KIND
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> y: array<vec4f>; // (VECS); on entry, the result of the batches before this one

@compute @workgroup_size(THREADS)
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
