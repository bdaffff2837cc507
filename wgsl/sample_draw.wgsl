// drawn[m, i] = (bits of the largest logit / temperature + Gumbel noise among the tokens of partition i that pass the filters,
// its index). Their argmax samples from the softmax. Grid (partitions, rows).
// The noise is a hash of seed, position and token, so equal seeds give equal text for any batching of steps.
// Clears the histogram for the next token.
#param RANKED // 1: after sample_bounds.wgsl; 0: without histogram, for min_p alone
#param PARTITION // logits of a partition; one workgroup reads them
#param WG

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read> best: array<vec2u>; // (rows, partitions)
@bind var<storage, read_write> drawn: array<vec2u>; // (rows, partitions)
#if RANKED
#param BUCKETS // of the histogram of a row
@bind var<storage, read> bounds: array<FilterBounds, MAX_SMALL_BATCH>;
@bind var<storage, read_write> histogram: array<vec4u>; // (rows, BUCKETS)
#endif
#include "lib/top.wgsl"

#if RANKED
fn bounds_of(m: u32, seq: u32, t: u32) -> FilterBounds {
  return bounds[m];
}
#else
fn bounds_of(m: u32, seq: u32, t: u32) -> FilterBounds {
  let top = top_of(m, t).value;
  let lowest = select(0u, key_of(top + log(sampling[seq].min_p)), sampling[seq].min_p > 0.0);
  return FilterBounds(lowest, key_of(top), top, sampling[seq].temperature);
}
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let seq = rows[m].seq;
  if (rows[m].wanted == 0u || is_greedy(sampling[seq])) {
    return;
  }
#if RANKED
  for (var i = wid.x * WG + t; i < BUCKETS; i += p.partitions * WG) {
    histogram[m * BUCKETS + i] = vec4u(0);
  }
#endif
  let at = m * p.partitions + wid.x;
  let allowed = bounds_of(m, seq, t);
  let temperature = allowed.temperature;
  let position = rows[m].at + sampling[seq].shifted;
  var value = EMPTY;
  var index = 0xffffffffu;
  if (key_of(bitcast<f32>(best[at].x)) >= allowed.min_key) { // uniform, like all that depends on the partition alone
    for (var i = wid.x * PARTITION + t; i < min((wid.x + 1u) * PARTITION, p.vocab); i += WG) {
      let logit = logits[m * p.stride + i];
      if (key_of(logit) >= allowed.min_key && key_of(logit) <= allowed.max_key) {
        var v = logit - allowed.top;
        if (temperature > 0.0) {
          v = v / temperature + gumbel(hash(sampling[seq].seed, position, i));
        }
        if (v > value) {
          value = v;
          index = i;
        }
      }
    }
  }
  let top = workgroup_argmax(value, index, t);
  if (t == 0u) {
    drawn[at] = vec2u(bitcast<u32>(top.value), top.index);
  }
}
