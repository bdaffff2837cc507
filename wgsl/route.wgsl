// Which experts a token goes to, and with what share each: the USED ones whose router logits make the largest weights, in a
// softmax over all experts or each for itself. A thread a token.
#param EXPERTS
#param USED
#param GATING // "softmax" or "sigmoid"
#param BIASED // 1: experts are chosen by their share and a bias
#param NORMALISED // 1: the weights of the chosen ones add up to one

struct Params {
  scale: f32, // of the weights
  stride: u32, // floats between tokens of the logits
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> logits: array<f32>;
#if BIASED
@bind var<storage, read> bias: array<f32>; // (EXPERTS)
#endif
@bind var<storage, read_write> chosen: array<u32>; // (n, USED)
@bind var<storage, read_write> weights: array<f32>; // (n, USED)

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.x;
  if (m >= state.n) {
    return;
  }
  let at = m * p.stride;
  var top = -3e38;
  for (var e = 0u; e < EXPERTS; e++) {
    top = max(top, logits[at + e]);
  }
  var all = 0.0;
  for (var e = 0u; e < EXPERTS; e++) {
    all += exp(logits[at + e] - top);
  }
  var last = 3e38; // the one chosen before: the next is smaller, or equal and behind it
  var last_e = 0u;
  var total = 0.0;
  for (var k = 0u; k < USED; k++) {
    var best = -3e38;
    var best_e = 0u;
    for (var e = 0u; e < EXPERTS; e++) {
#if BIASED
      let v = share_of(logits[at + e], top, all) + bias[e];
#else
      let v = logits[at + e];
#endif
      if (v > best && (v < last || (v == last && e > last_e))) {
        best = v;
        best_e = e;
      }
    }
    last = best;
    last_e = best_e;
    let share = share_of(logits[at + best_e], top, all);
    total += share;
    chosen[m * USED + k] = best_e;
    weights[m * USED + k] = share * p.scale;
  }
#if NORMALISED
  for (var k = 0u; k < USED; k++) {
    weights[m * USED + k] /= max(total, 6.1035e-5);
  }
#endif
}

fn share_of(logit: f32, top: f32, all: f32) -> f32 {
#if GATING == "sigmoid"
  return 1.0 / (1.0 + exp(-logit));
#else
  return exp(logit - top) / all;
#endif
}
