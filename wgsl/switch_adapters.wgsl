// The adapter that control tokens have switched on for each token, and the token that is embedded in its place.
// A control token weighs 1, any other token `others`: the adapter is the weighted mean of the control tokens' numbers
// (0: none) in the sequence so far, rounded. Grid (tokens).
#param ADAPTERS
#param TOKENS // capacity of a sequence in `tokens`
#param WG
#param SG

struct Params {
  others: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> tokens: array<u32>; // (sequences, TOKENS)
@bind var<storage, read> control: array<f32>; // (2 * ADAPTERS): control tokens, then those that are embedded in their place
@bind var<storage, read_write> embedded: array<u32>; // (sequences, TOKENS)
@bind var<storage, read_write> chosen: array<u32>; // (n)
@bind var<storage, read_write> weights: array<f32>; // (n): of the chosen adapters, 1
#include "lib/reduce.wgsl"

fn number_of(token: u32) -> u32 {
  var number = 0u;
  for (var i = 0u; i < ADAPTERS; i++) {
    number = select(number, i + 1u, f32(token) == control[i]);
  }
  return number;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let last = pos_of(m);
  let row = seq_of(m) * TOKENS;
  var sums = vec2f(0);
  for (var i = last - offset_of(m) + t; i <= last; i += WG) {
    let number = number_of(tokens[row + i]);
    sums += vec2f(f32(number), f32(min(number, 1u)));
  }
  let total = workgroup_sum(sums.x, t);
  let found = workgroup_sum(sums.y, t);
  if (t > 0u) {
    return;
  }
  let token = tokens[row + last];
  let number = number_of(token);
  embedded[row + last] = select(token, u32(control[ADAPTERS + max(number, 1u) - 1u]), number > 0u);
  let mean = total / (found + p.others * (f32(offset_of(m)) + 1.0 - found));
  chosen[m] = u32(clamp(floor(mean + 0.5), 0.0, f32(ADAPTERS)));
  weights[m] = 1.0;
}
