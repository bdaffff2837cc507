// Choose the next token, write it behind the sequence and move the state on: the host has no part in it.
//
// One workgroup. Filters work as in llama.cpp, in this order, on the logits before temperature: top_k (ties stay in),
// top_p (the smallest set of the most likely tokens that holds that share of what top_k left), min_p (a share of the
// likeliest). Each comes down to a threshold on the logit, found digit by digit over the bits of the float, so nothing
// is sorted. Then argmax(logit / temperature + Gumbel noise), which draws from the softmax; the noise is a hash of
// seed, position and token, so equal seeds give equal text however the work is cut.
#param VOCAB
#param SHARES
#param WG
#param SG

struct Sampling { // written by the host once a request
  temperature: f32, // 0: greedy
  top_k: u32, // 0: off
  top_p: f32,
  min_p: f32,
  seed: u32,
}
#include "state.wgsl"
@bind var<storage, read> sampling: Sampling;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read> best: array<vec2u>; // (SHARES) from sample_best.wgsl
@bind var<storage, read_write> tokens: array<u32>;
@bind var<storage, read_write> state: State;
#include "argmax.wgsl"
#include "reduce.wgsl"

fn key_of(value: f32) -> u32 { // grows with the float
  let bits = bitcast<u32>(value);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// The largest key t with sum over {key >= max(t, least)} of weight >= target; weight is 1, or exp(logit - top).
fn threshold(count: bool, target_sum: f32, least: u32, top: f32, t: u32) -> u32 {
  var found = 0u;
  for (var bit = 30; bit >= 0; bit -= 2) { // two bits at a time: three candidates
    var sums = vec3f(0);
    let step = 1u << u32(bit);
    for (var i = t; i < VOCAB; i += WG) {
      let key = key_of(logits[i]);
      if (key >= least) {
        let weight = select(exp(logits[i] - top), 1.0, count);
        sums += select(vec3f(0), vec3f(weight), vec3u(key) >= vec3u(found) + vec3u(1u, 2u, 3u) * step);
      }
    }
    let totals = vec3f(workgroup_sum(sums.x, t), workgroup_sum(sums.y, t), workgroup_sum(sums.z, t));
    found += step * dot(select(vec3u(0), vec3u(1), totals >= vec3f(target_sum)), vec3u(1));
  }
  return max(found, least);
}

fn hash(seed: u32, pos: u32, token: u32) -> u32 { // PCG's output permutation (O'Neill 2014), chained
  var h = seed;
  for (var i = 0u; i < 3u; i++) {
    h = (h ^ select(select(token, pos, i == 1u), 0x9e3779b9u, i == 0u)) * 747796405u + 2891336453u;
    h = ((h >> ((h >> 28u) + 4u)) ^ h) * 277803737u;
    h = (h >> 22u) ^ h;
  }
  return h;
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  var value = -3e38;
  var index = 0xffffffffu;
  for (var i = t; i < SHARES; i += WG) {
    let b = best[i];
    let v = bitcast<f32>(b.x);
    if (v > value || (v == value && b.y < index)) {
      value = v;
      index = b.y;
    }
  }
  var chosen = workgroup_argmax(value, index, t);
  let at = state.pos + state.n;
  if (sampling.temperature > 0.0) { // uniform: the host wrote it
    let top = chosen.value;
    var least = 0u;
    if (sampling.top_k > 0u && sampling.top_k < VOCAB) {
      least = threshold(true, f32(sampling.top_k), least, top, t);
    }
    if (sampling.top_p < 1.0) {
      var mass = 0.0;
      for (var i = t; i < VOCAB; i += WG) {
        mass += select(0.0, exp(logits[i] - top), key_of(logits[i]) >= least);
      }
      least = threshold(false, sampling.top_p * workgroup_sum(mass, t), least, top, t);
    }
    if (sampling.min_p > 0.0) {
      least = max(least, key_of(top + log(sampling.min_p)));
    }
    value = -3e38;
    index = 0xffffffffu;
    for (var i = t; i < VOCAB; i += WG) {
      if (key_of(logits[i]) >= least) {
        let u = (f32(hash(sampling.seed, at, i) >> 8u) + 0.5) / 16777216.0;
        let v = (logits[i] - top) / sampling.temperature - log(-log(u));
        if (v > value) {
          value = v;
          index = i;
        }
      }
    }
    chosen = workgroup_argmax(value, index, t);
  }
  if (t == 0u) {
    tokens[at] = min(chosen.index, VOCAB - 1u); // NaN logits choose nothing
    state.pos = at;
    state.n = 1u;
  }
}
