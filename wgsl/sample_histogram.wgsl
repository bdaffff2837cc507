// Counts a row's logits by their distance from the largest one (lib/histogram.wgsl), and gathers what top_n_sigma needs.
// bounds[m] = the bounds before any filter. Grid (blocks, rows).

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32, // of `best`
  blocks: u32, // workgroups of a row
}
@bind var<uniform> p: Params;
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read> logits: array<vec4f>; // (rows, stride / 4)
@bind var<storage, read> best: array<vec2u>; // (rows, partitions)
@bind var<storage, read_write> histogram: array<array<atomic<u32>, 4>>; // (rows, BUCKETS)
@bind var<storage, read_write> bounds: array<FilterBounds, MAX_SMALL_BATCH>;
@bind var<storage, read_write> spread: array<vec4f>; // (rows, blocks): tokens not banned, mean logit, sum of squared deviations
#include "lib/block.wgsl"
#include "lib/histogram.wgsl"
#include "lib/top.wgsl"
#include "lib/reduce.wgsl"

fn measure_spread(m: u32, part: u32, t: u32) {
  var count = 0.0;
  var sum = 0.0;
#for i in PARTITION // (4 * WG)
  for (var j = 0u; j < 4u; j++) {
    let logit = block_logits[${i}][j];
    count += select(0.0, 1.0, logit > BANNED);
    sum += select(0.0, logit, logit > BANNED);
  }
#endfor
  let n = workgroup_sum(count, t);
  let mean = workgroup_sum(sum, t) / max(n, 1.0);
  var squares = 0.0;
#for i in PARTITION // (4 * WG)
  for (var j = 0u; j < 4u; j++) {
    let difference = block_logits[${i}][j] - mean;
    squares += select(0.0, difference * difference, block_logits[${i}][j] > BANNED);
  }
#endfor
  let total = workgroup_sum(squares, t);
  if (t == 0u) {
    spread[m * p.blocks + part] = vec4f(n, mean, total, 0.0);
  }
}

// First in the workgroup's memory: many logits share a bucket.
var<workgroup> counts: array<atomic<u32>, BUCKETS>;
var<workgroup> losses: array<atomic<u32>, BUCKETS>;
var<workgroup> moments: array<atomic<u32>, BUCKETS>;

fn count_logit(logit: f32, top: f32, moments_too: bool) {
  if (logit > BANNED) {
    let bucket = bucket_of(top - logit);
    let offset = max(top - logit - near_edge(bucket), 0.0);
    let units = UNITS / width_of(bucket);
    atomicAdd(&counts[bucket], 1u);
    atomicAdd(&losses[bucket], u32((1.0 - exp(-offset)) * units + 0.5));
    if (moments_too) {
      atomicAdd(&moments[bucket], u32(offset * exp(-offset) * units + 0.5));
    }
  }
}

fn count_logits(m: u32, top: f32, moments_too: bool, t: u32) {
  for (var bucket = t; bucket < BUCKETS; bucket += WG) {
    atomicStore(&counts[bucket], 0u);
    atomicStore(&losses[bucket], 0u);
    atomicStore(&moments[bucket], 0u);
  }
  workgroupBarrier();
#for i in PARTITION // (4 * WG)
  for (var j = 0u; j < 4u; j++) {
    count_logit(block_logits[${i}][j], top, moments_too);
  }
#endfor
  workgroupBarrier();
  for (var bucket = t; bucket < BUCKETS; bucket += WG) {
    let count = atomicLoad(&counts[bucket]);
    if (count > 0u) {
      let at = m * BUCKETS + bucket;
      atomicAdd(&histogram[at][COUNT], count);
      atomicAdd(&histogram[at][LOSS], atomicLoad(&losses[bucket]));
      if (moments_too) {
        atomicAdd(&histogram[at][MOMENT], atomicLoad(&moments[bucket]));
      }
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let seq = rows[m].seq;
  if (rows[m].wanted == 0u || is_greedy(sampling[seq])) {
    return;
  }
  load_block(m, wid.x, t);
  let top = top_of(m, t).value;
  if (wid.x == 0u && t == 0u) {
    bounds[m] = FilterBounds(0u, key_of(top), top, sampling[seq].temperature);
  }
  if (sampling[seq].top_n_sigma > 0.0) { // uniform, like all that depends on the row alone
    measure_spread(m, wid.x, t);
  }
  if (is_ranked(sampling[seq], p.vocab)) {
    count_logits(m, top, needs_entropy(sampling[seq]), t);
  }
}
