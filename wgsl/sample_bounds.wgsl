// bounds[m] = which logits of row m pass the filters. Grid (1, rows).
//
// Filters as in llama.cpp, in this order, on the logits before temperature:
//   top_n_sigma   logits at least max - n * standard deviation
//   top_k         the k largest logits, ties included
//   typical_p     the tokens whose surprise is nearest to the entropy, with that much probability in sum
//   top_p         the smallest set of the likeliest tokens with that much of the remaining probability
//   min_p         tokens at least that fraction as likely as the likeliest
//   XTC           with a given chance, drops all tokens above a threshold but the least likely of them
// Each filter is a bound on the logit, so a range of logits passes all of them. The histogram gives the bucket of a bound; the
// bound itself is found among that bucket's logits (lib/ranks.wgsl).
#param WG

struct Params {
  vocab: u32,
  partitions: u32, // of `best`
  blocks: u32, // of `spread`
}
@bind var<uniform> p: Params;
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read> best: array<vec2u>; // (rows, partitions)
@bind var<storage, read> spread: array<vec4f>; // (rows, blocks): tokens not banned, mean logit, sum of squared deviations
@bind var<storage, read> sorted: array<f32>; // (rows, vocab)
@bind var<storage, read> histogram: array<vec4u>; // (rows, BUCKETS)
@bind var<storage, read_write> bounds: array<FilterBounds, MAX_SMALL_BATCH>;
#include "lib/top.wgsl"
#include "lib/reduce.wgsl"
#include "lib/ranks.wgsl"
#include "lib/typical.wgsl"

fn deviation(m: u32, t: u32) -> f32 { // standard deviation of the logits that are not banned
  var count = 0.0;
  var sum = 0.0;
  for (var i = t; i < p.blocks; i += WG) {
    let part = spread[m * p.blocks + i];
    count += part.x;
    sum += part.x * part.y;
  }
  let n = max(workgroup_sum(count, t), 1.0);
  let mean = workgroup_sum(sum, t) / n;
  var squares = 0.0;
  for (var i = t; i < p.blocks; i += WG) {
    let part = spread[m * p.blocks + i];
    squares += part.z + part.x * (part.y - mean) * (part.y - mean);
  }
  return sqrt(workgroup_sum(squares, t) / n);
}

// The bound of XTC from above: the key of the least likely token that reaches the threshold.
fn xtc_bound(lowest: u32, highest: u32, seq: u32, t: u32) -> u32 {
  let above = sums_from(highest + 1u, t);
  let mass = sums_from(lowest, t).mass - above.mass;
  let threshold = max(lowest, key_of(row_top + log(sampling[seq].xtc_threshold * mass)));
  let count = sums_from(threshold, t).count;
  let bound = bound_of(true, count, t);
  return select(min(highest, bound), highest, threshold > highest || count <= above.count);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let seq = rows[m].seq;
  if (rows[m].wanted == 0u || is_greedy(sampling[seq])) {
    return;
  }
  let top = top_of(m, t).value;
  var lowest = 0u;
  var highest = key_of(top);
  var likeliest = highest;
  if (sampling[seq].top_n_sigma > 0.0) { // uniform, like all that depends on the row alone
    lowest = key_of(top - sampling[seq].top_n_sigma * deviation(m, t));
  }
  if (is_ranked(sampling[seq], p.vocab)) {
    load_ranks(m, top, t);
    if (sampling[seq].top_k > 0u && sampling[seq].top_k < p.vocab) {
      lowest = max(lowest, bound_of(true, f32(sampling[seq].top_k), t));
    }
    var above = 0.0; // mass of the likelier tokens that typical_p drops
    if (sampling[seq].typical_p < 1.0) {
      let range = typical_range(sampling[seq].typical_p, lowest, t);
      lowest = max(lowest, range.x);
      highest = min(highest, range.y);
      let sums = sums_from(highest + 1u, t);
      above = sums.mass;
      highest = min(highest, bound_of(true, sums.count + 1.0, t));
    }
    if (sampling[seq].top_p < 1.0) {
      let remaining = sums_from(lowest, t).mass - above;
      lowest = min(highest, max(lowest, bound_of(false, above + sampling[seq].top_p * remaining, t)));
    }
  }
  if (sampling[seq].min_p > 0.0) {
    lowest = max(lowest, key_of(value_of(highest) + log(sampling[seq].min_p)));
  }
  let at = rows[m].at + sampling[seq].shifted;
  if (sampling[seq].xtc_probability > 0.0) {
    if (uniform_of(hash(sampling[seq].seed, at, 0xffffffffu)) <= sampling[seq].xtc_probability) {
      highest = xtc_bound(lowest, highest, seq, t);
    }
  }
  if (t == 0u) {
    bounds[m] = FilterBounds(lowest, highest, top);
  }
}
