// Choose the next token, write it behind the sequence and move the state on: the host has no part in it.
//
// One workgroup a token. Filters work as in llama.cpp, in this order, on the logits before temperature: top_k (ties stay in),
// typical_p (the tokens whose surprise is nearest to the entropy, that hold that share), top_p (the smallest set of the
// most likely tokens that holds that share of what is left), min_p (a share of the likeliest), XTC (now and then all
// but the least likely of those above a threshold go). Each comes down to a bound on the logit, or on its distance from
// the entropy, found digit by digit over the bits of the float, so nothing is sorted: among the few hundred largest
// logits, the pool, where that is enough, else among all. Then argmax(logit / temperature + Gumbel noise), which draws
// from the softmax; the noise is a hash of seed, position and token, so equal seeds give equal text however the work is
// cut.
//
// MASKED, it looks at the token that was chosen before: where a mask of allowed tokens forbids it, one is chosen again
// among those. llama.cpp does the same; so what is chosen does not depend on whether the host sent the mask before, or
// after it has seen a token that it must refuse.
#param PARTITION // logits of a workgroup of sample_best.wgsl, or sample_shape.wgsl
#param STATE_PER_TOKEN // 1: of several tokens with a State each (sequence.wgsl), grid (1, 1, tokens)
#param TOKENS // room for each sequence in `tokens`
#param SHAPED // 1: with typical_p and XTC, after sample_shape.wgsl; 0: after sample_best.wgsl
#param MASKED // 1: choose again, with a mask
#param WG
#param SG

struct Params {
  vocab: u32,
  stride: u32, // floats between tokens of logits
  partitions: u32, // of sample_best.wgsl, or sample_shape.wgsl
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SMALL_BATCH>;
@bind var<storage, read> logits: array<f32>; // (n, stride)
@bind var<storage, read> best: array<vec2u>; // (n, partitions): logit bits, index
#if STATE_PER_TOKEN
@bind var<storage, read_write> chosen: array<u32>; // of each token, for advance.wgsl
#else
@bind var<storage, read_write> tokens: array<u32>;
#endif
#if STATE_PER_TOKEN
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#else
@bind var<storage, read_write> state: array<State, 1>;
#endif
#if MASKED
@bind var<storage, read> mask: array<u32>; // bits of the tokens that may come next
#endif
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

var<private> row: u32; // the token's of logits and of best
var<workgroup> whose: u32; // its sequence
const NOBODY = 0xffffffffu;

struct FilterBounds { // what the filters have left
  least: u32, // keys of logits
  most: u32,
  center: f32, // and those whose distance from this logit has a key, negated, of at least `near`
  near: u32,
}

fn key_of(value: f32) -> u32 { // grows with the float
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
  return key >= bounds.least && key <= bounds.most && key_of(-abs(logit - bounds.center)) >= bounds.near;
}
#else
fn passes(logit: f32, bounds: FilterBounds) -> bool {
  return key_of(logit) >= bounds.least;
}
#endif

// The pool: every logit less than a number of steps below the top, in as many slots of each thread as it found.
const SLOTS = 12u;
const EMPTY = -3e38;
const STEPS = 64u; // a quarter wide
const POOLED = SLOTS * WG / 5u; // at most, so that hardly ever a thread finds more than it has slots
const WORTH_POOLING = 8192u; // of fewer, all are looked at as quickly
var<workgroup> pool: array<f32, SLOTS * WG>;
var<workgroup> steps: array<atomic<u32>, STEPS>; // how many logits lie so far below the top
var<workgroup> overflow: atomic<u32>;

struct Pool {
  count: u32, // 0: it could not be made
  total: f32, // sum of exp(logit - top) of all logits
}

fn step_of(logit: f32, top: f32) -> u32 {
  return u32(clamp((top - logit) * 4.0, 0.0, f32(STEPS)));
}

fn fill_pool(top: f32, t: u32) -> Pool {
  if (t < STEPS) {
    atomicStore(&steps[t], 0u);
  }
  if (t == 0u) {
    atomicStore(&overflow, 0u);
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    let logit = logit_of(i);
    sum += exp(logit - top);
    let step = step_of(logit, top);
    if (step < STEPS) {
      atomicAdd(&steps[step], 1u);
    }
  }
  let total = workgroup_sum(sum, t);
  var count = 0u;
  var end = 0u;
  for (; end < STEPS; end++) {
    let more = count + atomicLoad(&steps[end]);
    if (more > POOLED) {
      break;
    }
    count = more;
  }
  var slot = 0u;
  for (var part = 0u; part < p.partitions; part++) {
    if (step_of(bitcast<f32>(best[row * p.partitions + part].x), top) < end) {
      for (var i = part * PARTITION + t; i < min((part + 1u) * PARTITION, p.vocab); i += WG) {
        let logit = logit_of(i);
        if (step_of(logit, top) < end) {
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

struct Source { // where the logits come from: the pool, or all
  pooled: bool,
  end: u32,
}

fn value_of(i: u32, source: Source) -> f32 {
  if (source.pooled) {
    return pool[i];
  }
  return logit_of(i);
}

fn mass(bounds: FilterBounds, top: f32, source: Source, t: u32) -> f32 { // sum of exp(logit - top) of what is bounds
  var sum = 0.0;
  for (var i = t; i < source.end; i += WG) {
    let logit = value_of(i, source);
    sum += select(0.0, exp(logit - top), passes(logit, bounds));
  }
  return workgroup_sum(sum, t);
}

// The largest key b with sum over {bounds, key >= b} of weight >= wanted; weight is 1, or exp(logit - top); the key is
// the logit's, or, `nearest`, that of its distance from the center, negated.
fn bound(counted: bool, nearest: bool, wanted: f32, bounds: FilterBounds, top: f32, source: Source, t: u32) -> u32 {
  var found = 0u;
  for (var bit = 30; bit >= 0; bit -= 2) { // two bits at a time: three candidates
    var sums = vec3f(0);
    let step = 1u << u32(bit);
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      if (passes(logit, bounds) && logit > -2e38) {
        let weight = select(exp(logit - top), 1.0, counted);
        let key = key_of(select(logit, -abs(logit - bounds.center), nearest));
        sums += select(vec3f(0), vec3f(weight), vec3u(key) >= vec3u(found) + vec3u(1u, 2u, 3u) * step);
      }
    }
    let totals = vec3f(workgroup_sum(sums.x, t), workgroup_sum(sums.y, t), workgroup_sum(sums.z, t));
    found += step * dot(select(vec3u(0), vec3u(1), totals >= vec3f(wanted)), vec3u(1));
  }
  return found;
}

#if SHAPED
// The standard deviation of all logits that are not banned.
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

fn filtered(top: f32, at: u32, seq: u32, t: u32) -> FilterBounds {
  var bounds = FilterBounds(0u, 0xffffffffu, 0.0, 0u);
  var source = Source(false, p.vocab);
  var by_sigma = false;
#if SHAPED
  by_sigma = sampling[seq].top_n_sigma > 0.0;
  if (by_sigma) {
    bounds.least = key_of(top - sampling[seq].top_n_sigma * deviation(t));
  }
#endif
  var total = -1.0; // of all, where it is known
  let counts = sampling[seq].top_k > 0u && sampling[seq].top_k < p.vocab;
  let sums = sampling[seq].top_p < 1.0 && sampling[seq].typical_p >= 1.0 && !by_sigma;
  if (p.vocab > WORTH_POOLING && (counts || sums)) {
    let pooled = fill_pool(top, t);
    let in_pool = Source(pooled.count > 0u, select(p.vocab, SLOTS * WG, pooled.count > 0u));
    let inside = mass(bounds, top, in_pool, t);
    if (select(inside >= sampling[seq].top_p * pooled.total, pooled.count >= sampling[seq].top_k, counts)) {
      source = in_pool;
    }
    total = select(pooled.total, total, counts || by_sigma);
  }
  if (counts) {
    bounds.least = max(bounds.least, bound(true, false, f32(sampling[seq].top_k), bounds, top, source, t));
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
    // a surprise is log(sum_of_all) + top - logit; their mean, the entropy, log(sum_of_all) - sum / sum_of_all
    bounds.center = top + workgroup_sum(sum, t) / sum_of_all;
    bounds.near = bound(false, true, sampling[seq].typical_p * sum_of_all, bounds, top, source, t);
    var value = EMPTY;
    for (var i = t; i < source.end; i += WG) {
      let logit = value_of(i, source);
      value = select(value, max(value, logit), passes(logit, bounds));
    }
    likeliest = workgroup_argmax(value, t, t).value;
  }
#endif
  if (sampling[seq].top_p < 1.0) {
    let here = mass(bounds, likeliest, source, t);
    let wanted = sampling[seq].top_p * select(here, total, total >= 0.0);
    bounds.least = max(bounds.least, bound(false, false, wanted, bounds, likeliest, source, t));
  }
  if (sampling[seq].min_p > 0.0) {
    bounds.least = max(bounds.least, key_of(likeliest + log(sampling[seq].min_p)));
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
    bounds.most = select(bounds.most, key_of(-lowest), lowest > -1e38 && chance <= sampling[seq].xtc_probability);
  }
#endif
  return bounds;
}

fn drawn(bounds: FilterBounds, top: f32, at: u32, seq: u32, t: u32) -> u32 {
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var part = 0u; part < p.partitions; part++) {
    if (key_of(bitcast<f32>(best[row * p.partitions + part].x)) >= bounds.least) {
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

fn likeliest_of_all(t: u32) -> Best {
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
var<workgroup> refused: u32;
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  row = wid.z;
  if (t == 0u) {
    whose = select(NOBODY, state[wid.z].seq, wid.z < state[0].n || STATE_PER_TOKEN == 0u);
  }
  let seq = workgroupUniformLoad(&whose);
  if (seq == NOBODY) {
    return;
  }
#if MASKED
  let at = state[wid.z].pos; // the chosen token's
  if (t == 0u) {
    refused = select(1u, 0u, allows(tokens[seq * TOKENS + at]));
  }
  if (workgroupUniformLoad(&refused) == 0u) {
    return;
  }
#else
#if STATE_PER_TOKEN
  let at = state[wid.z].pos + 1u;
#else
  let at = state[wid.z].pos + state[wid.z].n;
#endif
#endif
  let first = likeliest_of_all(t);
  var index = first.index;
  // without a filter, greedy is done; the branch is uniform: the host wrote what it depends on
  if (sampling[seq].temperature > 0.0 || sampling[seq].xtc_probability > 0.0 || sampling[seq].typical_p < 1.0) {
    let drawn_at = at + sampling[seq].shifted;
    index = drawn(filtered(first.value, drawn_at, seq, t), first.value, drawn_at, seq, t);
  }
  if (t == 0u) {
    index = min(index, p.vocab - 1u); // NaN logits choose nothing
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
