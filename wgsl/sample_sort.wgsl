// sorted[m] = the row's logits, bucket by bucket of the histogram: in descending order of buckets, in any order within one.
// Grid (partitions, rows).
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
@bind var<storage, read_write> histogram: array<array<atomic<u32>, 4>>; // (rows, BUCKETS)
@bind var<storage, read_write> sorted: array<f32>; // (rows, vocab)
#include "lib/histogram.wgsl"
#include "lib/top.wgsl"
#include "lib/prefix.wgsl"

const EACH = BUCKETS / WG; // buckets of a thread
var<workgroup> starts: array<u32, BUCKETS>; // each bucket's first place

fn find_starts(m: u32, t: u32) {
  var counts: array<u32, EACH>;
  var sum = 0u;
  for (var j = 0u; j < EACH; j++) {
    counts[j] = atomicLoad(&histogram[m * BUCKETS + t * EACH + j][COUNT]);
    sum += counts[j];
  }
  let end = workgroup_prefix(vec2f(f32(sum), 0), t).x;
  var start = u32(end) - sum;
  for (var j = 0u; j < EACH; j++) {
    starts[t * EACH + j] = start;
    start += counts[j];
  }
  workgroupBarrier();
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (rows[m].wanted == 0u || !is_ranked(sampling[rows[m].seq], p.vocab)) {
    return;
  }
  let top = top_of(m, t).value;
  find_starts(m, t);
  for (var i = wid.x * PARTITION + t; i < min((wid.x + 1u) * PARTITION, p.vocab); i += WG) {
    let logit = logits[m * p.stride + i];
    if (logit > BANNED) {
      let bucket = bucket_of(top - logit);
      let place = starts[bucket] + atomicAdd(&histogram[m * BUCKETS + bucket][CURSOR], 1u);
      sorted[m * p.vocab + place] = logit;
    }
  }
}
