// Maps a batch index to (sequence, position). The batch is either consecutive tokens of one sequence, or a small batch
// with a State per token: the next tokens of several sequences, or one sequence's last token and its draft.
#param STATE_PER_TOKEN // 0: one State; 1: one State per token, and the first one's n is the size of the batch
#param MAX_SMALL_BATCH // tokens of a small batch at most
#include "lib/state.wgsl"
#if STATE_PER_TOKEN
@bind var<storage, read> state: array<State, MAX_SMALL_BATCH>;

fn count() -> u32 {
  return state[0].n;
}

fn pos_of(m: u32) -> u32 {
  return state[m].pos;
}

fn seq_of(m: u32) -> u32 {
  return state[m].seq;
}
#else
@bind var<storage, read> state: State;

fn count() -> u32 {
  return state.n;
}

fn pos_of(m: u32) -> u32 {
  return state.pos + m;
}

fn seq_of(m: u32) -> u32 {
  return state.seq;
}
#endif
