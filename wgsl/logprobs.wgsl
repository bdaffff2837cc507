// log(softmax(logits)) of each row's sampled token and of the n likeliest tokens, before any filter. Grid (1, rows).
//
// The n likeliest tokens are in the n partitions with the largest logits, and none of them ranks below the n-th partition's
// largest. The tokens that rank so high are gathered and ranked by comparing all pairs. Where many logits are equal, or
// partitions are few, they are too many to gather: then the likeliest token after the last one is searched n times.
#param PARTITION // logits of a partition
#param LOGPROB_ROWS // rows of a sequence: a position's row is position % LOGPROB_ROWS
#param MAX_LOGPROBS // likeliest tokens of a row at most
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row
#param TOKENS // capacity of a sequence in `tokens`
#param WG
#param SG

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> state: array<State>; // positions of the sampled tokens
@bind var<storage, read> tokens: array<u32>;
@bind var<storage, read> logits: array<f32>;
@bind var<storage, read> partial: array<vec4u>; // (rows, partitions), of logprobs_partitions.wgsl
// (sequence, LOGPROB_ROWS, 1 + MAX_LOGPROBS): token, bits of its log-probability; the sampled token first
@bind var<storage, read_write> logprobs: array<vec2u>;
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

const MAX_GATHERED = 1024u;
var<workgroup> gathered: array<Best, MAX_GATHERED>;
var<workgroup> n_gathered: atomic<u32>;
var<workgroup> uniform_word: u32;
var<workgroup> likeliest: array<u32, MAX_LOGPROBS>; // partitions
var<workgroup> lowest: Best; // the largest logit of the last of them

fn ranks_before(a: Best, b: Best) -> bool {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

fn head_of(m: u32, part: u32) -> Best {
  let record = partial[m * p.partitions + part];
  return Best(bitcast<f32>(record.x), record.y);
}

// The partitions of the n likeliest tokens, in any order of threads.
fn find_partitions(m: u32, n: u32, t: u32) {
  if (t == 0u) {
    lowest = Best(EMPTY, 0xffffffffu);
    atomicStore(&n_gathered, 0u);
  }
  workgroupBarrier();
  for (var part = t; part < p.partitions; part += WG) {
    let head = head_of(m, part);
    var rank = 0u;
    for (var other = 0u; other < p.partitions && rank < n; other++) {
      rank += u32(ranks_before(head_of(m, other), head));
    }
    if (rank < n) {
      likeliest[rank] = part;
    }
    if (rank + 1u == n) {
      lowest = head;
    }
  }
  workgroupBarrier();
}

fn logit_in(m: u32, part: u32, i: u32) -> Best { // the i-th of a partition
  let index = part * PARTITION + i;
  if (index < p.vocab) {
    return Best(logits[m * p.stride + index], index);
  }
  return Best(EMPTY, 0xffffffffu);
}

fn write(at: u32, token: Best, base: f32) {
  logprobs[at] = vec2u(token.index, bitcast<u32>(token.value - base));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (STATE_PER_TOKEN == 1u && m >= state[0].n) {
    return;
  }
  let seq = state[m].seq;
  var top = Best(EMPTY, 0xffffffffu);
  for (var part = t; part < p.partitions; part += WG) {
    let head = head_of(m, part);
    if (ranks_before(head, top)) {
      top = head;
    }
  }
  top = workgroup_argmax(top.value, top.index, t);
  var sum = 0.0;
  for (var part = t; part < p.partitions; part += WG) {
    let record = partial[m * p.partitions + part];
    sum += bitcast<f32>(record.z) * exp(bitcast<f32>(record.x) - top.value);
  }
  let base = top.value + log(workgroup_sum(sum, t));
  let at = (seq * LOGPROB_ROWS + state[m].pos % LOGPROB_ROWS) * (1u + MAX_LOGPROBS);
  if (t == 0u) {
    let sampled = tokens[seq * TOKENS + state[m].pos];
    write(at, Best(logits[m * p.stride + sampled], sampled), base);
  }
  let n = min(sampling[seq].logprobs, MAX_LOGPROBS);
  if (n == 0u) { // uniform, like all that depends on the row alone
    return;
  }
  find_partitions(m, n, t);
  let count = min(n, p.partitions);
  for (var i = t; i < count * PARTITION; i += WG) {
    let token = logit_in(m, likeliest[i / PARTITION], i % PARTITION);
    if (token.value > EMPTY && !ranks_before(lowest, token)) {
      let place = atomicAdd(&n_gathered, 1u);
      if (place < MAX_GATHERED) {
        gathered[place] = token;
      }
    }
  }
  workgroupBarrier();
  if (t == 0u) {
    uniform_word = atomicLoad(&n_gathered);
  }
  let found = workgroupUniformLoad(&uniform_word);
  if (found <= MAX_GATHERED) {
    for (var i = t; i < found; i += WG) {
      var rank = 0u;
      for (var other = 0u; other < found; other++) {
        rank += u32(ranks_before(gathered[other], gathered[i]));
      }
      if (rank < n) {
        write(at + 1u + rank, gathered[i], base);
      }
    }
    for (var k = found + t; k < n; k += WG) {
      write(at + 1u + k, Best(EMPTY, 0xffffffffu), base);
    }
    return;
  }
  var last = Best(-EMPTY, 0u); // ranks before all
  for (var k = 0u; k < n; k++) {
    var next = Best(EMPTY, 0xffffffffu);
    for (var i = t; i < count * PARTITION; i += WG) {
      let token = logit_in(m, likeliest[i / PARTITION], i % PARTITION);
      if (ranks_before(last, token) && ranks_before(token, next)) {
        next = token;
      }
    }
    last = workgroup_argmax(next.value, next.index, t);
    if (t == 0u) {
      write(at + 1u + k, last, base);
    }
  }
}
