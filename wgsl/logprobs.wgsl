// log(softmax(logits)) of the sampled token and of the likeliest tokens, before any filter.
//
// One workgroup. Thread t owns the logits t, t + WG, ...; its candidate is the largest that is not returned yet. The best
// candidate is the next likeliest token. All threads then search its owner's logits for the owner's next candidate.
#param LOGPROB_ROWS // rows of the buffer: a position's row is position % LOGPROB_ROWS
#param MAX_LOGPROBS // likeliest tokens of a row at most
#param TOKENS // capacity of a sequence in `tokens`
#param WG
#param SG

struct Params {
  vocab: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> state: State; // position of the sampled token
@bind var<storage, read> tokens: array<u32>;
@bind var<storage, read> logits: array<f32>;
// (LOGPROB_ROWS, 1 + MAX_LOGPROBS): token, bits of its log-probability; the sampled token first
@bind var<storage, read_write> rows: array<vec2u>;
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  var offer = Best(-3e38, 0xffffffffu);
  for (var i = t; i < p.vocab; i += WG) {
    if (logits[i] > offer.value) {
      offer = Best(logits[i], i);
    }
  }
  var top = workgroup_argmax(offer.value, offer.index, t);
  var sum = 0.0;
  for (var i = t; i < p.vocab; i += WG) {
    sum += exp(logits[i] - top.value);
  }
  let base = top.value + log(workgroup_sum(sum, t));
  let row = (state.pos % LOGPROB_ROWS) * (1u + MAX_LOGPROBS);
  if (t == 0u) {
    let sampled = tokens[state.seq * TOKENS + state.pos];
    rows[row] = vec2u(sampled, bitcast<u32>(logits[sampled] - base));
  }
  for (var k = 0u; k < min(sampling[state.seq].logprobs, MAX_LOGPROBS); k++) { // uniform: the same for all threads
    if (t == 0u) {
      rows[row + 1u + k] = vec2u(top.index, bitcast<u32>(top.value - base));
    }
    let owner = top.index % WG;
    var next = Best(-3e38, 0xffffffffu);
    for (var i = owner + WG * t; i < p.vocab; i += WG * WG) {
      let value = logits[i];
      let later = value < top.value || (value == top.value && i > top.index);
      if (later && value > next.value) {
        next = Best(value, i);
      }
    }
    next = workgroup_argmax(next.value, next.index, t);
    if (t == owner) {
      offer = next;
    }
    top = workgroup_argmax(offer.value, offer.index, t);
  }
}
