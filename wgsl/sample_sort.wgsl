// sorted[m] = the row's logits, bucket by bucket of the histogram: in descending order of buckets, in any order within one.
// Grid (blocks, rows).
#param PARTITION // logits of a block; one workgroup reads them
#param WG

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32, // of `best`
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
var<workgroup> cursors: array<atomic<u32>, BUCKETS>; // of this workgroup: tokens of a bucket, then its next place for one

fn find_starts(m: u32, t: u32) {
  var sum = 0u;
  for (var bucket = t * EACH; bucket < (t + 1u) * EACH; bucket++) {
    starts[bucket] = atomicLoad(&histogram[m * BUCKETS + bucket][COUNT]);
    sum += starts[bucket];
    atomicStore(&cursors[bucket], 0u);
  }
  var start = u32(workgroup_prefix(vec2f(f32(sum), 0), t).x) - sum;
  for (var bucket = t * EACH; bucket < (t + 1u) * EACH; bucket++) {
    let count = starts[bucket];
    starts[bucket] = start;
    start += count;
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
  let end = min((wid.x + 1u) * PARTITION, p.vocab);
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    let logit = logits[m * p.stride + i];
    if (logit > BANNED) {
      atomicAdd(&cursors[bucket_of(top - logit)], 1u);
    }
  }
  workgroupBarrier();
  for (var bucket = t; bucket < BUCKETS; bucket += WG) { // reserve places for all tokens of a bucket at once
    let count = atomicLoad(&cursors[bucket]);
    if (count > 0u) {
      atomicStore(&cursors[bucket], starts[bucket] + atomicAdd(&histogram[m * BUCKETS + bucket][CURSOR], count));
    }
  }
  workgroupBarrier();
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    let logit = logits[m * p.stride + i];
    if (logit > BANNED) {
      sorted[m * p.vocab + atomicAdd(&cursors[bucket_of(top - logit)], 1u)] = logit;
    }
  }
}
