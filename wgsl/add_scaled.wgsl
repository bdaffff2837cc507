// y[m] += scale * x[m]; GATED: y[m] += scale * sigmoid(gate[m]) * x[m]. Grid (VECS / THREADS, tokens).
#param VECS // vec4 of a row
#param GATED
#param THREADS

struct Params {
  scale: f32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, VECS)
#if GATED
@bind var<storage, read> gate: array<f32>; // (n, 32); column 0 counts
#endif
@bind var<storage, read_write> y: array<vec4f>;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < VECS) {
    let at = id.y * VECS + id.x;
#if GATED
    y[at] += p.scale / (1.0 + exp(-gate[id.y * 32u])) * x[at];
#else
    y[at] += p.scale * x[at];
#endif
  }
}
