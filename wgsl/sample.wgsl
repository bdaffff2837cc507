// token = argmax over the filtered tokens of logit / temperature + Gumbel noise, which samples from their softmax; appends
// it to the sequence and advances the state. Grid (1, 1, tokens), a workgroup per token.
//
// Filters as in llama.cpp, in this order, on the logits before temperature:
//   top_n_sigma   logits at least max - n * standard deviation
//   top_k         the k largest logits, ties included
//   typical_p     the tokens whose surprise is nearest to the entropy, with that much probability in sum
//   top_p         the smallest set of the likeliest tokens with that much of the remaining probability
//   min_p         tokens at least that fraction as likely as the likeliest
//   XTC           with a given chance, drops all tokens above a threshold but the least likely of them
// Each filter is a bound on the logit, or on its distance from the entropy. The bound is found two bits of the float at a
// time, so nothing is sorted: among the few hundred largest logits (the pool) where they are enough, else among all.
// The noise is a hash of seed, position and token, so equal seeds give equal text for any batching of steps.
//
// MASKED: runs after an unmasked pass. If the mask forbids the token sampled there, samples again among the allowed tokens.
// llama.cpp does the same. So the result does not depend on whether the host sent the mask before that pass or after it.
#param PARTITION // logits of a partition, which one workgroup of sample_best.wgsl or sample_shape.wgsl reads
#param STATE_PER_TOKEN // 1: a small batch with a State per token (sequence.wgsl); 0: one token
#param TOKENS // capacity of a sequence in `tokens`
#param SHAPED // 1: after sample_shape.wgsl, with top_n_sigma, typical_p and XTC; 0: after sample_best.wgsl
#param MASKED // 1: sample again where the mask forbids the token
#param WG
#param SG

struct Params {
  vocab: u32,
  stride: u32, // floats between tokens of logits
  partitions: u32, // partitions of the vocabulary
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> logits: array<f32>; // (n, stride)
@bind var<storage, read> best: array<vec2u>; // (n, partitions): bits of the largest logit, its index
#if STATE_PER_TOKEN
@bind var<storage, read_write> chosen: array<u32>; // (n): sampled tokens, for advance.wgsl
#else
@bind var<storage, read_write> tokens: array<u32>;
#endif
#if STATE_PER_TOKEN
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#else
@bind var<storage, read_write> state: array<State, 1>;
#endif
#if MASKED
@bind var<storage, read> mask: array<u32>; // a bit per token: 1 if it is allowed
#endif
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

var<private> row: u32; // the token's row of `logits` and `best`
var<workgroup> sequence: u32; // the token's sequence
const NO_SEQUENCE = 0xffffffffu;

struct FilterBounds { // a token passes if both hold
  min_key: u32, // min_key <= key_of(logit) <= max_key
  max_key: u32,
  center: f32, // key_of(-|logit - center|) >= min_closeness
  min_closeness: u32,
}

fn key_of(value: f32) -> u32 { // an integer in the order of the floats
  let bits = bitcast<u32>(value);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

#if MASKED
fn allows(i: u32) -> bool {
  return ((mask[i / 32u] >> (i % 32u)) & 1u) == 1u;
}

fn logit_of(i: u32) -> f32 {
  if (allows(i)) {
    return logits[row * p.stride + i];
  }
  return BANNED;
}
#else
fn logit_of(i: u32) -> f32 {
  return logits[row * p.stride + i];
}
#endif

#if SHAPED
fn passes(logit: f32, bounds: FilterBounds) -> bool {
  let key = key_of(logit);
  return key >= bounds.min_key && key <= bounds.max_key && key_of(-abs(logit - bounds.center)) >= bounds.min_closeness;
}
#else
fn passes(logit: f32, bounds: FilterBounds) -> bool {
  return key_of(logit) >= bounds.min_key;
}
#endif

// The pool: all logits above a bound. A histogram of the distances from the largest logit gives the bound. Each thread
// stores the logits that it finds in its own slots.
const SLOTS = 12u; // of a thread
const EMPTY = -3e38;
const BUCKETS = 64u; // of the histogram, each 0.25 wide
const MAX_POOL = SLOTS * WG / 5u; // logits; small enough that a thread rarely runs out of slots
const MIN_POOL_VOCAB = 8192u; // a scan of a smaller vocabulary is as fast
var<workgroup> pool: array<f32, SLOTS * WG>;
var<workgroup> histogram: array<atomic<u32>, BUCKETS>; // logits by their distance from the largest
var<workgroup> overflow: atomic<u32>;

struct Pool {
  count: u32, // logits; 0: a thread ran out of slots
  total: f32, // sum of exp(logit - top) over the vocabulary
}

fn bucket_of(logit: f32, top: f32) -> u32 {
  return u32(clamp((top - logit) * 4.0, 0.0, f32(BUCKETS)));
}

fn fill_pool(top: f32, t: u32) -> Pool {
  if (t < BUCKETS) {
    atomicStore(&histogram[t], 0u);
  }
  if (t == 0u) {
    atomicStore(&overflow, 0u);
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    let logit = logit_of(i);
    sum += exp(logit - top);
    let bucket = bucket_of(logit, top);
    if (bucket < BUCKETS) {
      atomicAdd(&histogram[bucket], 1u);
    }
  }
  let total = workgroup_sum(sum, t);
  var count = 0u;
  var end = 0u;
  for (; end < BUCKETS; end++) {
    let more = count + atomicLoad(&histogram[end]);
    if (more > MAX_POOL) {
      break;
    }
    count = more;
  }
  var slot = 0u;
  for (var part = 0u; part < p.partitions; part++) {
    if (bucket_of(bitcast<f32>(best[row * p.partitions + part].x), top) < end) {
      for (var i = part * PARTITION + t; i < min((part + 1u) * PARTITION, p.vocab); i += WG) {
        let logit = logit_of(i);
        if (bucket_of(logit, top) < end) {
          if (slot < SLOTS) {
            pool[slot * WG + t] = logit;
          }
          slot++;
        }
      }
    }
  }
  if (slot > SLOTS) {
    atomicStore(&overflow, 1u);
  }
  for (; slot < SLOTS; slot++) {
    pool[slot * WG + t] = EMPTY;
  }
  workgroupBarrier();
  return Pool(select(count, 0u, atomicLoad(&overflow) == 1u), total);
}

struct Source { // where the logits come from: the pool or the vocabulary
  pooled: bool,
  end: u32, // number of logits
}

fn value_of(i: u32, source: Source) -> f32 {
  if (source.pooled) {
    return pool[i];
  }
  return logit_of(i);
}

// Sum of exp(logit - top) over the tokens that pass.
fn mass(bounds: FilterBounds, top: f32, source: Source, t: u32) -> f32 {
  var sum = 0.0;
  for (var i = t; i < source.end; i += WG) {
    let logit = value_of(i, source);
    sum += select(0.0, exp(logit - top), passes(logit, bounds));
  }
  return workgroup_sum(sum, t);
}

// The largest key b such that the passing tokens with key >= b weigh `required` or more in sum. A token weighs 1
// (`counted`) or exp(logit - top). Its key is key_of(logit), or key_of(-|logit - center|) (`by_closeness`).
fn find_bound(counted: bool, by_closeness: bool, required: f32, bounds: FilterBounds, top: f32, source: Source, t: u32) -> u32 {
  var found = 0u;
  for (var bit = 30; bit >= 0; bit -= 2) { // two bits at a time: three candidates
    var sums = vec3f(0);
    let step = 1u << u32(bit);
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      if (passes(logit, bounds) && logit > -2e38) {
        let weight = select(exp(logit - top), 1.0, counted);
        let key = key_of(select(logit, -abs(logit - bounds.center), by_closeness));
        sums += select(vec3f(0), vec3f(weight), vec3u(key) >= vec3u(found) + vec3u(1u, 2u, 3u) * step);
      }
    }
    let totals = vec3f(workgroup_sum(sums.x, t), workgroup_sum(sums.y, t), workgroup_sum(sums.z, t));
    found += step * dot(select(vec3u(0), vec3u(1), totals >= vec3f(required)), vec3u(1));
  }
  return found;
}

#if SHAPED
// Standard deviation of the logits that are not banned.
fn deviation(t: u32) -> f32 {
  var sum = 0.0;
  var count = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    let logit = logit_of(i);
    sum += select(0.0, logit, logit > BANNED);
    count += select(0.0, 1.0, logit > BANNED);
  }
  let n = max(workgroup_sum(count, t), 1.0);
  let mean = workgroup_sum(sum, t) / n;
  var squares = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    let logit = logit_of(i);
    let difference = logit - mean;
    squares += select(0.0, difference * difference, logit > BANNED);
  }
  return sqrt(workgroup_sum(squares, t) / n);
}
#endif

fn filter_bounds(top: f32, at: u32, seq: u32, t: u32) -> FilterBounds {
  var bounds = FilterBounds(0u, 0xffffffffu, 0.0, 0u);
  var source = Source(false, p.vocab);
  var by_sigma = false;
#if SHAPED
  by_sigma = sampling[seq].top_n_sigma > 0.0;
  if (by_sigma) {
    bounds.min_key = key_of(top - sampling[seq].top_n_sigma * deviation(t));
  }
#endif
  var total = -1.0; // mass of the vocabulary, once it is known
  let counts = sampling[seq].top_k > 0u && sampling[seq].top_k < p.vocab;
  let sums = sampling[seq].top_p < 1.0 && sampling[seq].typical_p >= 1.0 && !by_sigma;
  if (p.vocab > MIN_POOL_VOCAB && (counts || sums)) {
    let pooled = fill_pool(top, t);
    let in_pool = Source(pooled.count > 0u, select(p.vocab, SLOTS * WG, pooled.count > 0u));
    let inside = mass(bounds, top, in_pool, t);
    if (select(inside >= sampling[seq].top_p * pooled.total, pooled.count >= sampling[seq].top_k, counts)) {
      source = in_pool;
    }
    total = select(pooled.total, total, counts || by_sigma);
  }
  if (counts) {
    bounds.min_key = max(bounds.min_key, find_bound(true, false, f32(sampling[seq].top_k), bounds, top, source, t));
  }
  var likeliest = top;
#if SHAPED
  if (sampling[seq].typical_p < 1.0) {
    let sum_of_all = mass(bounds, top, source, t);
    var sum = 0.0;
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      let weight = exp(logit - top);
      sum += select(0.0, weight * (logit - top), passes(logit, bounds) && weight > 0.0);
    }
    // surprise = log(sum_of_all) + top - logit; the entropy is its mean, log(sum_of_all) - sum / sum_of_all
    bounds.center = top + workgroup_sum(sum, t) / sum_of_all;
    bounds.min_closeness = find_bound(false, true, sampling[seq].typical_p * sum_of_all, bounds, top, source, t);
    var value = EMPTY;
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      value = select(value, max(value, logit), passes(logit, bounds));
    }
    likeliest = workgroup_argmax(value, t, t).value;
  }
#endif
  if (sampling[seq].top_p < 1.0) {
    let remaining = mass(bounds, likeliest, source, t);
    let required = sampling[seq].top_p * select(remaining, total, total >= 0.0);
    bounds.min_key = max(bounds.min_key, find_bound(false, false, required, bounds, likeliest, source, t));
  }
  if (sampling[seq].min_p > 0.0) {
    bounds.min_key = max(bounds.min_key, key_of(likeliest + log(sampling[seq].min_p)));
  }
#if SHAPED
  let chance = uniform_of(hash(sampling[seq].seed, at, 0xffffffffu));
  if (sampling[seq].xtc_probability > 0.0) {
    let high = likeliest + log(sampling[seq].xtc_threshold * mass(bounds, likeliest, source, t));
    var value = EMPTY;
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      value = select(value, max(value, -logit), passes(logit, bounds) && logit >= high);
    }
    let lowest = workgroup_argmax(value, t, t).value;
    bounds.max_key = select(bounds.max_key, key_of(-lowest), lowest > -1e38 && chance <= sampling[seq].xtc_probability);
  }
#endif
  return bounds;
}

fn draw(bounds: FilterBounds, top: f32, at: u32, seq: u32, t: u32) -> u32 {
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var part = 0u; part < p.partitions; part++) {
    if (key_of(bitcast<f32>(best[row * p.partitions + part].x)) >= bounds.min_key) {
      for (var i = part * PARTITION + t; i < min((part + 1u) * PARTITION, p.vocab); i += WG) {
        let logit = logit_of(i);
        if (passes(logit, bounds)) {
          var v = logit - top;
          if (sampling[seq].temperature > 0.0) {
            v = v / sampling[seq].temperature + gumbel(hash(sampling[seq].seed, at, i));
          }
          if (v > value) {
            value = v;
            index = i;
          }
        }
      }
    }
  }
  return workgroup_argmax(value, index, t).index;
}

fn largest_logit(t: u32) -> Best {
  var value = EMPTY;
  var index = 0xffffffffu;
#if MASKED
  for (var i = t; i < p.vocab; i += WG) {
    let v = logit_of(i);
    if (v > value) {
      value = v;
      index = i;
    }
  }
#else
  for (var i = t; i < p.partitions; i += WG) {
    let b = best[row * p.partitions + i];
    let v = bitcast<f32>(b.x);
    if (v > value || (v == value && b.y < index)) {
      value = v;
      index = b.y;
    }
  }
#endif
  return workgroup_argmax(value, index, t);
}

#if MASKED
var<workgroup> rejected: u32;
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  row = wid.z;
  if (t == 0u) {
    sequence = select(NO_SEQUENCE, state[wid.z].seq, wid.z < state[0].n || STATE_PER_TOKEN == 0u);
  }
  let seq = workgroupUniformLoad(&sequence);
  if (seq == NO_SEQUENCE) {
    return;
  }
#if MASKED
  let at = state[wid.z].pos; // position of the sampled token
  if (t == 0u) {
    rejected = select(1u, 0u, allows(tokens[seq * TOKENS + at]));
  }
  if (workgroupUniformLoad(&rejected) == 0u) {
    return;
  }
#else
#if STATE_PER_TOKEN
  let at = state[wid.z].pos + 1u;
#else
  let at = state[wid.z].pos + state[wid.z].n;
#endif
#endif
  let first = largest_logit(t);
  var index = first.index;
  // without these filters, greedy sampling ends here; the branch is uniform: all threads have the same parameters
  if (sampling[seq].temperature > 0.0 || sampling[seq].xtc_probability > 0.0 || sampling[seq].typical_p < 1.0) {
    let noise_at = at + sampling[seq].shifted;
    index = draw(filter_bounds(first.value, noise_at, seq, t), first.value, noise_at, seq, t);
  }
  if (t == 0u) {
    index = min(index, p.vocab - 1u); // with NaN logits there is no argmax
#if STATE_PER_TOKEN
    chosen[wid.z] = index;
#else
    tokens[seq * TOKENS + at] = index;
    state[0].pos = at;
    state[0].n = 1u;
#if MASKED
    state[0].resampled++;
#endif
#endif
  }
}
