// x[m] += scale * a control vector's direction, with the scale of token m's sequence, for each residual stream.
// Grid (VECS / THREADS, tokens, streams).
#param VECS // vec4 of a stream
#param ADAPTERS // of the plan
#param THREADS

struct Params {
  adapter: u32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> direction: array<vec4f>;
@bind var<storage, read> scales: array<vec2f>; // (sequences, ADAPTERS): scale, and the first position where it counts
@bind var<storage, read_write> x: array<vec4f>; // (n, streams, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) wgs: vec3u) {
  if (id.y >= count() || id.x >= VECS) {
    return;
  }
  let scale = scales[seq_of(id.y) * ADAPTERS + p.adapter].x;
  if (scale != 0.0) {
    x[(id.y * wgs.z + id.z) * VECS + id.x] += scale * direction[id.x];
  }
}
