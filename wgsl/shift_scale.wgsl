// x[m] = (x[m] - shift) * factor, column by column. Grid (VECS / THREADS, tokens).
#param VECS // vec4 of a row
#param SHIFT // 1: a shift is subtracted
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
#if SHIFT
@bind var<storage, read> shift: array<vec4f>; // (VECS)
#endif
@bind var<storage, read> factor: array<vec4f>; // (VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < VECS) {
    let at = id.y * VECS + id.x;
    var v = x[at];
#if SHIFT
    v -= shift[id.x];
#endif
    x[at] = v * factor[id.x];
  }
}
