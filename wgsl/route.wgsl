// Routing of a mixture of experts: chosen[m] = the USED experts with the largest gates, weights[m] = scale * their gates.
// The gates are the softmax or the sigmoid of the router's logits. Grid (tokens / WG), a thread per token.
#param EXPERTS
#param USED // experts of a token
#param GATING // "softmax" or "sigmoid"
#param BIASED // 1: a bias per expert is added to the gates for the choice, not for the weights
#param WG
#param NORMALISED // 1: the gates of the chosen experts are divided by their sum

struct Params {
  scale: f32, // factor on the weights
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

@compute @workgroup_size(WG)
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
  var last = 3e38; // the previous choice: the next one is smaller, or equal with a larger index
  var last_e = 0u;
  var total = 0.0;
  for (var k = 0u; k < USED; k++) {
    var best = -3e38;
    var best_e = 0u;
    for (var e = 0u; e < EXPERTS; e++) {
#if BIASED
      let v = gate_of(logits[at + e], top, all) + bias[e];
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
    let gate = gate_of(logits[at + best_e], top, all);
    total += gate;
    chosen[m * USED + k] = best_e;
    weights[m * USED + k] = gate * p.scale;
  }
#if NORMALISED
  for (var k = 0u; k < USED; k++) {
    weights[m * USED + k] /= max(total, 6.1035e-5);
  }
#endif
}

fn gate_of(logit: f32, top: f32, all: f32) -> f32 {
#if GATING == "sigmoid"
  return 1.0 / (1.0 + exp(-logit));
#else
  return exp(logit - top) / all;
#endif
}
