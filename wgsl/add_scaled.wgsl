// y += scale * x, row by row.
#param VECS // vectors of a row

struct Params {
  scale: f32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> y: array<vec4f>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < VECS) {
    let at = id.y * VECS + id.x;
    y[at] += p.scale * x[at];
  }
}
