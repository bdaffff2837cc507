// Routing of a mixture of experts: chosen[m] = the USED experts with the largest gates, weights[m] = scale * their gates.
// The gates are the softmax of the router's logits, or a function of each. TABLED: a table chooses by the token instead, and the
// gates are weights only. Grid (tokens), a workgroup per token, a thread for each expert. An expert's place among the chosen is
// the number of experts before it, which the thread counts.
#param EXPERTS
#param USED // experts of a token
#param GATING // "softmax", "sigmoid" or "sqrt_softplus"
#param BIASED // 1: a bias per expert is added to the gates for the choice, not for the weights
#param GROUPS // of neighbouring experts: only the GROUPS_USED with the largest sums of their two best are chosen from; 0: all
#if GROUPS
#param GROUPS_USED
#endif
#param SHARING // so many neighbouring experts share a network: networks are chosen, each with the gate of its number; 0: none
#param FACTORS // 1: each expert's weights have a factor of its own
#param TABLED // 1: a table has the experts of each token
#if TABLED
#param TOKENS // capacity of a sequence in `tokens`
#param STATE_PER_TOKEN // 0: one State; 1: one State per token
#include "lib/state.wgsl"
@bind var<storage, read> state: States;
#endif
#param WG
#param NORMALISED // 1: the gates of the chosen experts are divided by their sum

struct Params {
  scale: f32, // factor on the weights
  stride: u32, // floats between tokens of the logits
#if TABLED
  rows: u32, // of the table
#endif
}
@bind var<uniform> p: Params;
@bind var<storage, read> logits: array<vec4f>; // (n, EXPERTS padded to 32)
#if BIASED
@bind var<storage, read> bias: array<vec4f>; // (EXPERTS padded to 32)
#endif
#if FACTORS
@bind var<storage, read> factors: array<vec4f>; // (EXPERTS padded to 32)
#endif
#if TABLED
@bind var<storage, read> tokens: array<u32>; // (sequences, TOKENS)
@bind var<storage, read> table: array<u32>; // (rows, USED padded to 32)
#endif
@bind var<storage, read_write> chosen: array<u32>; // (n, USED)
@bind var<storage, read_write> weights: array<f32>; // (n, USED)

const QUADS = (EXPERTS + 3u) / 4u;
const LEAST = -3e38;
var<workgroup> keys: array<vec4f, QUADS>; // logits, then what the choice is made by
var<workgroup> gates: array<vec4f, QUADS>;
var<workgroup> chosen_gates: array<f32, USED>;
#if FACTORS
var<workgroup> chosen_factors: array<f32, USED>;
#endif
#if GROUPS
const GROUP_SIZE = EXPERTS / GROUPS;
var<workgroup> group_sums: array<f32, GROUPS>;

fn sum_of_two_best(g: u32) -> f32 {
  var best = vec2f(LEAST / 4.0);
  for (var e = g * GROUP_SIZE; e < (g + 1u) * GROUP_SIZE; e++) {
    let key = keys[e / 4u][e % 4u];
    best = select(vec2f(best.x, max(best.y, key)), vec2f(key, best.x), key > best.x);
  }
  return best.x + best.y;
}

fn is_lost(g: u32) -> bool { // of equal groups the first is chosen
  var before = 0u;
  for (var other = 0u; other < GROUPS; other++) {
    let sum = group_sums[other];
    before += select(0u, 1u, sum > group_sums[g] || (sum == group_sums[g] && other < g));
  }
  return before >= GROUPS_USED;
}
#endif

fn only_experts(i: u32, v: vec4f, other: f32) -> vec4f { // `other` after the last expert
  return select(vec4f(other), v, 4u * i + vec4u(0, 1, 2, 3) < vec4u(EXPERTS));
}

#if GATING == "sqrt_softplus"

fn log1p(x: vec4f) -> vec4f { // log(1 + x) for x from 0 to 1, exact also where 1 + x loses digits of x
  let sum = 1.0 + x;
  return select(x * log(sum) / (sum - 1.0), x, sum == vec4f(1));
}
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  for (var i = t; i < QUADS; i += WG) {
    keys[i] = only_experts(i, logits[m * (p.stride / 4u) + i], LEAST);
  }
  workgroupBarrier();
#if GATING == "softmax"
  var top4 = vec4f(LEAST);
  for (var i = 0u; i < QUADS; i++) {
    top4 = max(top4, keys[i]);
  }
  let top = max(max(top4.x, top4.y), max(top4.z, top4.w));
#endif
  for (var i = t; i < QUADS; i += WG) {
#if GATING == "softmax"
    gates[i] = exp(keys[i] - top);
#endif
#if GATING == "sigmoid"
    gates[i] = 1.0 / (1.0 + exp(-keys[i]));
#endif
#if GATING == "sqrt_softplus"
    gates[i] = sqrt(max(keys[i], vec4f()) + log1p(exp(-abs(keys[i]))));
#endif
  }
  workgroupBarrier();
  var all = 1.0;
#if GATING == "softmax"
  var sum = vec4f(0);
  for (var i = 0u; i < QUADS; i++) {
    sum += gates[i];
  }
  all = sum.x + sum.y + sum.z + sum.w;
#endif
#if TABLED
  let own = state.tokens[STATE_PER_TOKEN * m];
  let token = min(tokens[own.seq * TOKENS + own.pos + (1u - STATE_PER_TOKEN) * m], p.rows - 1u);
  for (var k = t; k < USED; k += WG) {
    let e = min(table[token * ((USED + 31u) / 32u * 32u) + k], EXPERTS - 1u); // a damaged file may have any number
    chosen[m * USED + k] = e;
    chosen_gates[k] = gates[e / 4u][e % 4u] / all;
#if FACTORS
    chosen_factors[k] = factors[e / 4u][e % 4u];
#endif
  }
#else
#if BIASED or GROUPS
  for (var i = t; i < QUADS; i += WG) {
    var key = gates[i] / all;
#if BIASED
    key += bias[i];
#endif
    keys[i] = only_experts(i, key, LEAST);
  }
  workgroupBarrier();
#endif
#if GROUPS
  for (var g = t; g < GROUPS; g += WG) {
    group_sums[g] = sum_of_two_best(g);
  }
  workgroupBarrier();
  for (var i = t; i < QUADS; i += WG) {
    var own = keys[i];
#for c in 4
    own[${c}] = select(own[${c}], LEAST, is_lost(min((4u * i + ${c}u) / GROUP_SIZE, GROUPS - 1u)));
#endfor
    keys[i] = own;
  }
  workgroupBarrier();
#endif
  for (var e = t; e < EXPERTS; e += WG) {
    let own = keys[e / 4u][e % 4u];
    var place = vec4u(0);
    for (var j = 0u; j < QUADS; j++) {
      let other = keys[j];
      let first = 4u * j + vec4u(0, 1, 2, 3) < vec4u(e); // of equal experts the first is chosen
      place += select(vec4u(0), vec4u(1), (other > vec4f(own)) | ((other == vec4f(own)) & first));
    }
    let k = place.x + place.y + place.z + place.w;
    if (k < USED) {
#if SHARING
      let network = e / SHARING;
#else
      let network = e;
#endif
      chosen[m * USED + k] = network;
      chosen_gates[k] = gates[network / 4u][network % 4u] / all;
#if FACTORS
      chosen_factors[k] = factors[network / 4u][network % 4u];
#endif
    }
  }
#endif
  workgroupBarrier();
  for (var k = t; k < USED; k += WG) {
    var scale = p.scale;
#if NORMALISED
    var total = 0.0;
    for (var j = 0u; j < USED; j++) {
      total += chosen_gates[j];
    }
    scale /= max(total, 6.1035e-5);
#endif
#if FACTORS
    scale *= chosen_factors[k];
#endif
    weights[m * USED + k] = chosen_gates[k] * scale;
  }
}
