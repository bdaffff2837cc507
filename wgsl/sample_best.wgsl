// best[m, i] = (bits of the largest logit of partition i of the vocabulary, its index). Grid (partitions, tokens).
// The smaller index wins a tie.
#param PARTITION // logits of a partition; one workgroup reads them
#param WG

struct Params {
  vocab: u32,
  stride: u32, // floats between tokens of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read_write> best: array<vec2u>;
#include "lib/argmax.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let end = min((wid.x + 1u) * PARTITION, p.vocab);
  var value = -3e38;
  var index = 0xffffffffu;
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    let logit = logits[wid.y * p.stride + i];
    if (logit > value) {
      value = logit;
      index = i;
    }
  }
  let top = workgroup_argmax(value, index, t);
  if (t == 0u) {
    best[wid.y * p.partitions + wid.x] = vec2u(bitcast<u32>(top.value), top.index);
  }
}
