// logits[m, token] = process(token, logits[m, token], values ...), the function of a logits processor (processors.py), in
// the rows of the sequences that have it. A caller's text may call token_count, answer_count, token_at and table_at. It
// reaches nothing of other sequences: all else is named wisp_..., which it cannot have, and no function of WGSL is called
// here, because it may define its own of that name.
// Grid (vocab / WG, rows).
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row
#param TOKENS // capacity of a sequence in `wisp_tokens`
#param NUMBER // of the processor
#param RECORD // u32 of a sequence's record: the number of its processor, the position of the answer's first token, values
#param TABLE // 1: its sequences have tables
#param WG
#param BANNED // logit of a token that cannot be sampled
#param PROCESS // the caller's text

struct wisp_Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
}
@bind var<uniform> wisp_p: wisp_Params;
#include "lib/state.wgsl" with State=wisp_State States=wisp_States
@bind var<storage, read> wisp_state: array<wisp_State>;
@bind var<storage, read> wisp_tokens: array<u32>;
@bind var<storage, read> wisp_processors: array<u32>; // (sequence, RECORD)
#if TABLE
@bind var<storage, read> wisp_tables: array<f32>; // (sequence, vocab)
#endif
@bind var<storage, read_write> wisp_logits: array<f32>; // (rows, stride)

const wisp_largest = 3.0e38;
var<private> wisp_seq: u32;
var<private> wisp_at: u32;

fn wisp_value(i: u32) -> u32 {
  return wisp_processors[wisp_seq * RECORD + 2u + i];
}

fn wisp_below(i: u32, end: u32) -> u32 { // i, or the last index
  if (i < end) {
    return i;
  }
  if (end == 0u) {
    return 0u;
  }
  return end - 1u;
}

fn token_count() -> u32 { // of the prompt and of the answer so far
  return wisp_at;
}

fn answer_count() -> u32 { // tokens of the answer so far
  let begin = wisp_processors[wisp_seq * RECORD + 1u];
  if (wisp_at < begin) {
    return 0u;
  }
  return wisp_at - begin;
}

fn token_at(i: u32) -> u32 { // the token of a position below token_count(); media have ids of 2^31 and more
  return wisp_tokens[wisp_seq * TOKENS + wisp_below(i, wisp_at)];
}

#if TABLE
fn table_at(i: u32) -> f32 {
  return wisp_tables[wisp_seq * wisp_p.vocab + wisp_below(i, wisp_p.vocab)];
}

#endif
const wisp_begins = true; // the caller's text comes next
#text PROCESS

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3u) {
  let m = gid.y;
  if (gid.x >= wisp_p.vocab || (STATE_PER_TOKEN == 1u && m >= wisp_state[0].n)) {
    return;
  }
  wisp_seq = wisp_state[m].seq;
#if STATE_PER_TOKEN
  wisp_at = wisp_state[m].pos + 1u;
#else
  wisp_at = wisp_state[m].pos + wisp_state[0].n;
#endif
  if (wisp_processors[wisp_seq * RECORD] != NUMBER) {
    return;
  }
  let at = m * wisp_p.stride + gid.x;
  let x = wisp_process(gid.x, wisp_logits[at]);
  var made = BANNED; // also for NaN, which is no logit
  if (x > BANNED) {
    made = x;
  }
  if (made > wisp_largest) {
    made = wisp_largest;
  }
  wisp_logits[at] = made;
}
