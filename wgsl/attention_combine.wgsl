// Join the shares of attention.wgsl: a workgroup a query head, a thread four dimensions.
#param HEAD_DIM
#param TS
#param SPLIT

struct Params {
  n_head: u32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> parts: array<vec4f>; // (n_head, SPLIT, VECS + 1)
@bind var<storage, read_write> y: array<vec4f>; // (n_head, HEAD_DIM)
#include "attention_share.wgsl"

const VECS = HEAD_DIM / 4u;

@compute @workgroup_size(VECS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  if (wid.x >= p.n_head) {
    return;
  }
  let length = state.pos + 1u;
  let share = attention_share(length);
  let used = (length + share - 1u) / share;
  var top = -1e30;
  var total = 0.0;
  var sum = vec4f(0);
  for (var i = 0u; i < used; i++) {
    let at = (wid.x * SPLIT + i) * (VECS + 1u);
    let part = parts[at + VECS];
    let now = max(top, part.x);
    let old = exp(top - now);
    let fresh = exp(part.x - now);
    sum = sum * old + parts[at + t] * fresh;
    total = total * old + part.y * fresh;
    top = now;
  }
  y[wid.x * VECS + t] = sum / total;
}
