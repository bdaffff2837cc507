// shaped = logits with bias, repetition penalties and DRY; best[i] = (bits of the largest of partition i, its index).
// Grid (partitions).
//
// At every step, each workgroup counts the sequence's tokens that lie in its partition of the vocabulary. This costs some
// thousand reads, but leaves no state to roll back when tokens are rejected. Definitions as in llama.cpp:
//   repeat_penalty        for tokens among the last repeat_last_n: logit / penalty, or logit * penalty if not positive
//   frequency, presence   logit - frequency_penalty * count - (count > 0) * presence_penalty, in the completion
//   DRY                   logit - multiplier * base^(length - allowed), if the token would continue a repetition of
//                         `length` tokens: it followed an earlier occurrence of the sequence's last `length` tokens. A
//                         repetition does not cross a sequence breaker.
#param PARTITION // logits of a partition; one workgroup reads them
#param TOKENS // capacity of a sequence in `tokens`
#param WG

struct Params {
  vocab: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> state: State;
@bind var<storage, read> tokens: array<u32>;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read> bias: array<f32>; // (vocab)
@bind var<storage, read> breakers: array<u32>; // a bit for each token
@bind var<storage, read_write> shaped: array<f32>; // (vocab)
@bind var<storage, read_write> best: array<vec2u>; // (partitions): bits of the logit, its index
#include "lib/argmax.wgsl"

const SEEN = 0x80000000u;
var<workgroup> counts: array<atomic<u32>, PARTITION>; // in the completion; SEEN: among the last repeat_last_n
var<workgroup> repeats: array<atomic<u32>, PARTITION>; // 1 + length of the longest repetition that the token would continue
var<workgroup> unbroken: atomic<u32>; // position after the last sequence breaker

fn token_at(i: u32) -> u32 {
  return tokens[state.seq * TOKENS + i];
}

fn breaks(token: u32) -> bool {
  return ((breakers[token / 32u] >> (token % 32u)) & 1u) == 1u;
}

fn count_tokens(first: u32, end: u32, t: u32) { // those of the partition
  let window = end - min(end, sampling[state.seq].repeat_last_n);
  for (var i = min(window, sampling[state.seq].answer) + t; i < end; i += WG) {
    let token = token_at(i) - first;
    if (token < PARTITION) {
      if (i >= sampling[state.seq].answer) {
        atomicAdd(&counts[token], 1u);
      }
      if (i >= window) {
        atomicOr(&counts[token], SEEN);
      }
    }
  }
}

fn find_repeats(first: u32, end: u32, t: u32) {
  let begin = end - min(end, sampling[state.seq].dry_penalty_last_n);
  for (var i = begin + t; i < end; i += WG) {
    if (breaks(token_at(i))) {
      atomicMax(&unbroken, i + 1u);
    }
  }
  workgroupBarrier();
  let longest = min(end - max(begin, atomicLoad(&unbroken)), sampling[state.seq].dry_longest);
  for (var i = begin + t; i + 1u < end; i += WG) {
    let next = token_at(i + 1u) - first;
    if (next < PARTITION) {
      var length = 0u;
      while (length < longest && length <= i - begin && token_at(i - length) == token_at(end - 1u - length)) {
        length++;
      }
      if (length >= sampling[state.seq].dry_allowed_length && longest >= sampling[state.seq].dry_allowed_length && !breaks(next + first)) {
        atomicMax(&repeats[next], length + 1u);
      }
    }
  }
}

fn shape(logit: f32, i: u32, count: u32, repeat: u32) -> f32 {
  var x = logit + bias[i];
  if (count >= SEEN) {
    x *= select(sampling[state.seq].repeat_penalty, 1.0 / sampling[state.seq].repeat_penalty, x > 0.0);
  }
  let times = count % SEEN;
  x -= f32(times) * sampling[state.seq].frequency_penalty + select(0.0, sampling[state.seq].presence_penalty, times > 0u);
  if (repeat > 0u) {
    x -= sampling[state.seq].dry_multiplier * pow(sampling[state.seq].dry_base, f32(repeat - 1u - sampling[state.seq].dry_allowed_length));
  }
  return select(max(x, BANNED), BANNED, bias[i] <= -100.0);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.x * PARTITION;
  for (var i = t; i < PARTITION; i += WG) {
    atomicStore(&counts[i], 0u);
    atomicStore(&repeats[i], 0u);
  }
  if (t == 0u) {
    atomicStore(&unbroken, 0u);
  }
  workgroupBarrier();
  let end = state.pos + state.n;
  count_tokens(first, end, t);
  if (sampling[state.seq].dry_multiplier > 0.0) { // uniform: the same for all threads
    find_repeats(first, end, t);
  }
  workgroupBarrier();
  var value = -3e38;
  var index = 0xffffffffu;
  for (var i = t; i < min(PARTITION, p.vocab - first); i += WG) {
    let x = shape(logits[first + i], first + i, atomicLoad(&counts[i]), atomicLoad(&repeats[i]));
    shaped[first + i] = x;
    if (x > value) {
      value = x;
      index = first + i;
    }
  }
  let top = workgroup_argmax(value, index, t);
  if (t == 0u) {
    best[wid.x] = vec2u(bitcast<u32>(top.value), top.index);
  }
}
