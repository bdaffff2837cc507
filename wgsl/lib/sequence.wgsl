// Maps a batch index to (sequence, position). The batch is either consecutive tokens of one sequence, or a small batch
// with a State per token: the next tokens of several sequences, or one sequence's last token and its draft.
#param STATE_PER_TOKEN // 0: one State; 1: one State per token, and the first one's n is the size of the batch
#param ANCHOR // not 0: index in state.tables of the first sequence's anchor, the position of all tokens of a draft (models/gemma4_assistant.py)
#include "lib/state.wgsl"
#include "lib/segments.wgsl"
#include "lib/media.wgsl"
@bind var<storage, read> state: States;

fn count() -> u32 {
  return state.tokens[0].n;
}

fn pos_of(m: u32) -> u32 {
#if ANCHOR
  return state.tables[ANCHOR + seq_of(m)];
#else
#if STATE_PER_TOKEN
  return state.tokens[m].pos;
#else
  return batch_position(m);
#endif
#endif
}

fn seq_of(m: u32) -> u32 {
#if STATE_PER_TOKEN
  return state.tokens[m].seq;
#else
  return state.tokens[0].seq;
#endif
}

// Index of token m in `tokens` of its sequence, which has no gaps.
fn token_index(m: u32) -> u32 {
#if STATE_PER_TOKEN
  return state.tokens[m].pos;
#else
  return state.tokens[0].pos + m;
#endif
}

// Position of token m within its own sequence.
fn offset_of(m: u32) -> u32 {
  return pos_of(m) - segment_begin(m);
}
