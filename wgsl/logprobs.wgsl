// The log-probability of the token just chosen, and the likeliest tokens with theirs: of softmax(logits), unfiltered.
//
// One workgroup. Thread t has the logits t, t + WG, ...: its largest one stands for them. The likeliest of all is taken
// out as often as is wanted; each time all threads look for the largest that is left of its winner's.
#param ROWS // positions kept: row position % ROWS
#param MOST // tokens of a row
#param TOKENS // room for each sequence in `tokens`
#param WG
#param SG

struct Params {
  vocab: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SMALL_BATCH>;
@bind var<storage, read> state: State; // the chosen token's position
@bind var<storage, read> tokens: array<u32>;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read_write> rows: array<vec2u>; // (ROWS, 1 + MOST): token, bits of its log-probability; chosen first
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  var mine = Best(-3e38, 0xffffffffu);
  for (var i = t; i < p.vocab; i += WG) {
    if (logits[i] > mine.value) {
      mine = Best(logits[i], i);
    }
  }
  var top = workgroup_argmax(mine.value, mine.index, t);
  var sum = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    sum += exp(logits[i] - top.value);
  }
  let base = top.value + log(workgroup_sum(sum, t));
  let row = (state.pos % ROWS) * (1u + MOST);
  if (t == 0u) {
    let chosen = tokens[state.seq * TOKENS + state.pos];
    rows[row] = vec2u(chosen, bitcast<u32>(logits[chosen] - base));
  }
  for (var k = 0u; k < min(sampling[state.seq].logprobs, MOST); k++) { // uniform: the host wrote it
    if (t == 0u) {
      rows[row + 1u + k] = vec2u(top.index, bitcast<u32>(top.value - base));
    }
    let winner = top.index % WG;
    var next = Best(-3e38, 0xffffffffu);
    for (var i = winner + WG * t; i < p.vocab; i += WG * WG) {
      let value = logits[i];
      let later = value < top.value || (value == top.value && i > top.index);
      if (later && value > next.value) {
        next = Best(value, i);
      }
    }
    next = workgroup_argmax(next.value, next.index, t);
    if (t == winner) {
      mine = next;
    }
    top = workgroup_argmax(mine.value, mine.index, t);
  }
}
