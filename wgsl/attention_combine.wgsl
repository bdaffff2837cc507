// Join the shares of attention_decode.wgsl: a workgroup a query head, LANES shares side by side, a thread four dimensions.
#param HEAD_DIM
#param TS
#param SPLIT
#param LANES

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
var<workgroup> sums: array<vec4f, LANES * VECS>;
var<workgroup> totals: array<f32, LANES * VECS>;

@compute @workgroup_size(VECS, LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_id) id: vec3u) {
  if (wid.x >= p.n_head) {
    return;
  }
  let length = state.pos + 1u;
  let share = attention_share(length);
  let used = (length + share - 1u) / share;
  let base = wid.x * SPLIT;
  var top = -1e30; // every thread finds it for itself: the loads are the same ones
  for (var i = 0u; i < used; i++) {
    top = max(top, parts[(base + i) * (VECS + 1u) + VECS].x);
  }
  var total = 0.0;
  var sum = vec4f(0);
  for (var i = id.y; i < used; i += LANES) {
    let at = (base + i) * (VECS + 1u);
    let part = parts[at + VECS];
    let weight = exp(part.x - top);
    sum += parts[at + id.x] * weight;
    total += part.y * weight;
  }
  sums[id.y * VECS + id.x] = sum;
  totals[id.y * VECS + id.x] = total;
  workgroupBarrier();
  if (id.y == 0u) {
    for (var l = 1u; l < LANES; l++) {
      sum += sums[l * VECS + id.x];
      total += totals[l * VECS + id.x];
    }
    y[wid.x * VECS + id.x] = sum / total;
  }
}
