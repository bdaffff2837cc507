// shaped = logits with bias, penalties, DRY and the mask; best[m, i] = (bits of the largest of partition i, its index);
// rows[m] = what to sample. Grid (partitions, rows).
//
// At every step, each workgroup counts the sequence's tokens that lie in its partition of the vocabulary. This costs some
// thousand reads, but leaves no state to roll back when tokens are rejected. Definitions as in llama.cpp:
//   repeat_penalty        for tokens among the last repeat_last_n: logit / penalty, or logit * penalty if not positive
//   frequency, presence   logit - frequency_penalty * count - (count > 0) * presence_penalty, in the completion
//   DRY                   logit - multiplier * base^(length - allowed), if the token would continue a repetition of
//                         `length` tokens: it followed an earlier occurrence of the sequence's last `length` tokens. A
//                         repetition does not cross a sequence breaker.
//
// MASKED: runs after an unmasked pass. If the mask forbids the token sampled there, samples again among the allowed tokens.
// llama.cpp does the same. So the result does not depend on whether the host sent the mask before that pass or after it.
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row
#param TOKENS // capacity of a sequence in `tokens`
#param MAX_BIASES // of a sequence
#param BIT_WORDS // u32 of a bit per token of the vocabulary
#param MASKED // 1: sample again where the mask forbids the token

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> state: array<State>;
@bind var<storage, read> tokens: array<u32>;
@bind var<storage, read> logits: array<f32>;
// What a request says of single tokens, for each sequence: BIT_WORDS with a bit for each token that the mask allows,
// BIT_WORDS with a bit for each sequence breaker, and MAX_BIASES (token, bits of its bias), in ascending order of tokens.
@bind var<storage, read> rules: array<u32>; // (sequence, RULE_WORDS)
@bind var<storage, read_write> shaped: array<f32>; // (rows, stride)
#include "lib/first_pass.wgsl"

const RULE_WORDS = 2u * BIT_WORDS + 2u * MAX_BIASES;
const SEEN = 0x80000000u;
var<workgroup> counts: array<atomic<u32>, PARTITION>; // in the completion; SEEN: among the last repeat_last_n
var<workgroup> repeats: array<atomic<u32>, PARTITION>; // 1 + length of the longest repetition that the token would continue
var<workgroup> bias: array<f32, PARTITION>;
var<workgroup> unbroken: atomic<u32>; // position after the last sequence breaker

fn token_at(seq: u32, i: u32) -> u32 {
  return tokens[seq * TOKENS + i];
}

fn allows(seq: u32, token: u32) -> bool {
  return ((rules[seq * RULE_WORDS + token / 32u] >> (token % 32u)) & 1u) == 1u;
}

fn breaks(seq: u32, token: u32) -> bool { // media break a sequence, too
  return token >= p.vocab || ((rules[seq * RULE_WORDS + BIT_WORDS + token / 32u] >> (token % 32u)) & 1u) == 1u;
}

fn find_biases(seq: u32, first: u32, t: u32) { // those of the partition
  let list = seq * RULE_WORDS + 2u * BIT_WORDS;
  var begin = 0u; // the first bias of a token >= first, by bisection
  var width = sampling[seq].biases;
  while (width > 0u) {
    let half = width / 2u;
    let before = rules[list + 2u * (begin + half)] < first;
    begin = select(begin, begin + half + 1u, before);
    width = select(half, width - half - 1u, before);
  }
  for (var i = begin + t; i < sampling[seq].biases && rules[list + 2u * i] < first + PARTITION; i += WG) {
    bias[rules[list + 2u * i] - first] = bitcast<f32>(rules[list + 2u * i + 1u]);
  }
}

fn count_tokens(seq: u32, first: u32, end: u32, t: u32) { // those of the partition
  let window = end - min(end, sampling[seq].repeat_last_n);
  for (var i = min(window, sampling[seq].answer) + t; i < end; i += WG) {
    let token = token_at(seq, i) - first;
    if (token < PARTITION) {
      if (i >= sampling[seq].answer) {
        atomicAdd(&counts[token], 1u);
      }
      if (i >= window) {
        atomicOr(&counts[token], SEEN);
      }
    }
  }
}

fn find_repeats(seq: u32, first: u32, end: u32, t: u32) {
  let begin = end - min(end, sampling[seq].dry_penalty_last_n);
  for (var i = begin + t; i < end; i += WG) {
    if (breaks(seq, token_at(seq, i))) {
      atomicMax(&unbroken, i + 1u);
    }
  }
  workgroupBarrier();
  let longest = min(end - max(begin, atomicLoad(&unbroken)), sampling[seq].dry_longest);
  let allowed = sampling[seq].dry_allowed_length;
  for (var i = begin + t; i + 1u < end; i += WG) {
    let next = token_at(seq, i + 1u) - first;
    if (next < PARTITION) {
      var length = 0u;
      while (length < longest && length <= i - begin && token_at(seq, i - length) == token_at(seq, end - 1u - length)) {
        length++;
      }
      if (length >= allowed && longest >= allowed && !breaks(seq, next + first)) {
        atomicMax(&repeats[next], length + 1u);
      }
    }
  }
}

fn shape(seq: u32, logit: f32, i: u32) -> f32 { // i: within the partition
  let count = atomicLoad(&counts[i]);
  let repeat = atomicLoad(&repeats[i]);
  var x = logit + bias[i];
  if (count >= SEEN) {
    x *= select(sampling[seq].repeat_penalty, 1.0 / sampling[seq].repeat_penalty, x > 0.0);
  }
  let times = count % SEEN;
  x -= f32(times) * sampling[seq].frequency_penalty + select(0.0, sampling[seq].presence_penalty, times > 0u);
  if (repeat > 0u) {
    x -= sampling[seq].dry_multiplier * pow(sampling[seq].dry_base, f32(repeat - 1u - sampling[seq].dry_allowed_length));
  }
  return select(max(x, BANNED), BANNED, bias[i] <= -100.0);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let seq = state[m].seq;
  var wanted = STATE_PER_TOKEN == 0u || m < state[0].n;
#if MASKED
  let at = state[m].pos;
  if (wanted) {
    wanted = sampling[seq].masked == 1u && !allows(seq, token_at(seq, at));
  }
#else
  let at = state[m].pos + select(state[0].n, 1u, STATE_PER_TOKEN == 1u);
#endif
  write_row(m, Row(u32(wanted), seq, at, MASKED), wid.x, t);
  if (!wanted) {
    return;
  }
  let first = wid.x * PARTITION;
  let changed = is_shaped(sampling[seq]); // uniform, like all that depends on the row alone
  if (changed) {
    for (var i = t; i < PARTITION; i += WG) {
      atomicStore(&counts[i], 0u);
      atomicStore(&repeats[i], 0u);
      bias[i] = 0.0;
    }
    if (t == 0u) {
      atomicStore(&unbroken, 0u);
    }
    workgroupBarrier();
    find_biases(seq, first, t);
    count_tokens(seq, first, at, t);
    if (sampling[seq].dry_multiplier > 0.0) {
      find_repeats(seq, first, at, t);
    }
    workgroupBarrier();
  }
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var i = t; i < min(PARTITION, p.vocab - first); i += WG) {
    var x = logits[m * p.stride + first + i];
    if (changed) {
      x = shape(seq, x, i);
    }
#if MASKED
    x = select(BANNED, x, allows(seq, first + i));
#endif
    shaped[m * p.stride + first + i] = x;
    if (x > value) {
      value = x;
      index = first + i;
    }
  }
  write_best(m, value, index, wid.x, t);
}
