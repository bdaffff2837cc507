// log(softmax(logits)) of each row's sampled token and of the n likeliest tokens, before any filter. Grid (1, rows).
//
// The n likeliest tokens are in the n partitions with the largest logits, and none of them ranks below the n-th partition's
// largest. The tokens that rank so high are gathered and ranked by comparing all pairs. Where many logits are equal, or
// partitions are few, they are too many to gather: then the likeliest token after the last one is searched n times.
#param PARTITION // logits of a partition: 4 * WG
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
@bind var<storage, read> logits: array<vec4f>;
@bind var<storage, read> partial: array<vec4u>; // (rows, partitions), of logprobs_partitions.wgsl
// (sequence, LOGPROB_ROWS, 1 + MAX_LOGPROBS): token, bits of its log-probability; the sampled token first
@bind var<storage, read_write> logprobs: array<vec2u>;
#include "lib/argmax.wgsl"
#include "lib/reduce.wgsl"

const MAX_PARTITIONS = 512u;
const MAX_GATHERED = 512u;
var<workgroup> heads: array<Best, MAX_PARTITIONS>; // the largest logit of each partition
var<workgroup> gathered: array<Best, MAX_GATHERED>;
var<workgroup> n_gathered: atomic<u32>;
var<workgroup> uniform_word: u32;
var<workgroup> likeliest: array<u32, MAX_LOGPROBS>; // partitions
var<workgroup> lowest: Best; // the largest logit of the last of them

fn ranks_before(a: Best, b: Best) -> bool {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

// The partitions of the n likeliest tokens, in any order of threads.
fn find_partitions(m: u32, n: u32, t: u32) {
  if (t == 0u) {
    lowest = Best(EMPTY, 0xffffffffu);
    atomicStore(&n_gathered, 0u);
  }
  workgroupBarrier();
  for (var part = t; part < p.partitions; part += WG) {
    let head = heads[part];
    var rank = 0u;
    for (var other = 0u; other < p.partitions; other++) {
      rank += u32(ranks_before(heads[other], head));
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

// The four logits that thread t reads of a partition.
fn logits_of(m: u32, part: u32, t: u32) -> vec4f {
  let index = vec4u(part * PARTITION + 4u * t) + vec4u(0u, 1u, 2u, 3u);
  return select(vec4f(EMPTY), logits[(m * p.stride + index.x) / 4u], index < vec4u(p.vocab));
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
    let record = partial[m * p.partitions + part];
    heads[part] = Best(bitcast<f32>(record.x), record.y);
    top = better(top, heads[part]);
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
    let place = m * p.stride + sampled;
    write(at, Best(logits[place / 4u][place % 4u], sampled), base);
  }
  let n = min(sampling[seq].logprobs, MAX_LOGPROBS);
  if (n == 0u) { // uniform, like all that depends on the row alone
    return;
  }
  find_partitions(m, n, t);
  let count = min(n, p.partitions);
  for (var k = 0u; k < count; k++) {
    let values = logits_of(m, likeliest[k], t);
    for (var j = 0u; j < 4u; j++) {
      let token = Best(values[j], likeliest[k] * PARTITION + 4u * t + j);
      if (token.value > EMPTY && !ranks_before(lowest, token)) {
        let place = atomicAdd(&n_gathered, 1u);
        if (place < MAX_GATHERED) {
          gathered[place] = token;
        }
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
    for (var i = 0u; i < count; i++) {
      let values = logits_of(m, likeliest[i], t);
      for (var j = 0u; j < 4u; j++) {
        let token = Best(values[j], likeliest[i] * PARTITION + 4u * t + j);
        if (token.value > EMPTY && ranks_before(last, token) && ranks_before(token, next)) {
          next = token;
        }
      }
    }
    last = workgroup_argmax(next.value, next.index, t);
    if (t == 0u) {
      write(at + 1u + k, last, base);
    }
  }
}
