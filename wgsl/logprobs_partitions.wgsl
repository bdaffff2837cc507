// partial[m, i] = of partition i of the vocabulary: bits of the largest logit, its index, bits of the sum of
// exp(logit - largest). Grid (partitions, rows). The smaller index wins a tie.
#param PARTITION // logits of a partition; one workgroup reads them
#param WG
#param SG

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read_write> partial: array<vec4u>;
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let end = min((wid.x + 1u) * PARTITION, p.vocab);
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    let logit = logits[wid.y * p.stride + i];
    if (logit > value) {
      value = logit;
      index = i;
    }
  }
  let top = workgroup_argmax(value, index, t);
  var sum = 0.0;
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    sum += exp(logits[wid.y * p.stride + i] - top.value);
  }
  let total = workgroup_sum(sum, t);
  if (t == 0u) {
    partial[wid.y * p.partitions + wid.x] = vec4u(bitcast<u32>(top.value), top.index, bitcast<u32>(total), 0u);
  }
}
