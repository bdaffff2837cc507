// bounds[m] = which logits of row m pass the filters, and their temperature. Grid (1, rows).
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
//
// dynatemp_range, as in llama.cpp: h = entropy of the tokens that pass, divided by log(their count). The temperature is
// low + (high - low) * h^dynatemp_exponent, with low = max(temperature - range, 0) and high = temperature + range. One token
// keeps `temperature`. Unlike in llama.cpp, banned tokens do not count.
#param WG
#param SG
#param LEAST_TEMPERATURE // a lower dynamic one is 0

struct Params {
  vocab: u32,
  blocks: u32, // of `spread`
}
@bind var<uniform> p: Params;
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read> spread: array<vec4f>; // (rows, blocks): tokens not banned, mean logit, sum of squared deviations
@bind var<storage, read> sorted: array<f32>; // (rows, vocab)
@bind var<storage, read> histogram: array<vec4u>; // (rows, BUCKETS)
@bind var<storage, read_write> bounds: array<FilterBounds, MAX_SMALL_BATCH>; // first those of sample_histogram.wgsl
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

const TOP_K = 0u;
const TYPICAL_P = 1u;
const TOP_P = 2u;
const XTC = 3u;

fn is_on(stage: u32, s: Sampling, at: u32) -> bool {
  switch (stage) {
    case TOP_K: { return s.top_k > 0u && s.top_k < p.vocab; }
    case TYPICAL_P: { return s.typical_p < 1.0; }
    case TOP_P: { return s.top_p < 1.0; }
    default: { return s.xtc_probability > 0.0 && uniform_of(hash(s.seed, at, 0xffffffffu)) <= s.xtc_probability; }
  }
}

// The temperature for the tokens with keys in [lowest, highest].
fn dynamic_temperature(s: Sampling, lowest: u32, highest: u32, t: u32) -> f32 {
  let sums = sums_from(lowest, t);
  let above = sums_from(highest + 1u, t);
  let moment = moment_from(lowest, sums, t) - moment_from(highest + 1u, above, t);
  let count = sums.count - above.count;
  let mass = sums.mass - above.mass;
  if (count < 2.0) {
    return s.temperature;
  }
  let entropy = (log(mass) + moment / mass) / log(count);
  let least = max(s.temperature - s.dynatemp_range, 0.0);
  let found = mix(least, s.temperature + s.dynatemp_range, pow(clamp(entropy, 1e-30, 1.0), s.dynatemp_exponent));
  return select(0.0, found, found >= LEAST_TEMPERATURE);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let seq = rows[m].seq;
  if (rows[m].wanted == 0u || is_greedy(sampling[seq])) {
    return;
  }
  let top = bounds[m].top;
  var lowest = 0u;
  var highest = key_of(top);
  if (sampling[seq].top_n_sigma > 0.0) { // uniform, like all that depends on the row alone
    lowest = key_of(top - sampling[seq].top_n_sigma * deviation(m, t));
  }
  if (is_ranked(sampling[seq], p.vocab)) {
    load_ranks(m, top, t);
  }
  let at = rows[m].at + sampling[seq].shifted;
  for (var stage = TOP_K; stage <= XTC; stage++) { // one call of each long function: they compile slowly
    if (stage == XTC && sampling[seq].min_p > 0.0) {
      lowest = max(lowest, key_of(value_of(highest) + log(sampling[seq].min_p)));
    }
    if (!is_on(stage, sampling[seq], at)) {
      continue;
    }
    var sums: Sums; // from `lowest` on
    var above: Sums; // above `highest`
    var reached: Sums; // from XTC's threshold on
    var threshold = 0u;
    if (stage != TOP_K) {
      sums = sums_from(lowest, t);
      if (stage == TYPICAL_P) {
        let range = typical_range(sampling[seq].typical_p, lowest, sums, t);
        lowest = max(lowest, range.x);
        highest = min(highest, range.y);
      }
      above = sums_from(highest + 1u, t);
      if (stage == XTC) {
        let least = sampling[seq].xtc_threshold * (sums.mass - above.mass);
        threshold = select(lowest, max(lowest, key_of(top + log(least))), least > 0.0); // 0: all reach it
        reached = sums_from(threshold, t);
      }
    }
    var required = f32(sampling[seq].top_k);
    switch (stage) {
      case TYPICAL_P: { required = above.count + 1.0; } // the likeliest token in the range
      case TOP_P: { required = above.mass + sampling[seq].top_p * (sums.mass - above.mass); }
      case XTC: { required = reached.count; } // the least likely token that reaches the threshold
      default: {}
    }
    let bound = bound_of(stage != TOP_P, required, t);
    if (stage == TOP_K || stage == TOP_P) {
      lowest = min(highest, max(lowest, bound));
    } else if (stage == TYPICAL_P || (threshold <= highest && reached.count > above.count)) {
      highest = min(highest, bound);
    }
  }
  var temperature = sampling[seq].temperature;
  if (sampling[seq].dynatemp_range > 0.0) {
    temperature = dynamic_temperature(sampling[seq], lowest, highest, t);
  }
  if (t == 0u) {
    bounds[m] = FilterBounds(lowest, highest, top, temperature);
  }
}
