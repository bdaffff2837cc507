// Of which sequence a batch's token is, and its position there: those of one sequence follow each other, or each token
// has a State of its own, so that a batch can hold the next tokens of several sequences, or drafts at one's, which
// then lie side by side.
#param STATE_PER_TOKEN // 0: `state` is one State; 1: of each token, where that of the first one says how many there are
#param MAX_SMALL_BATCH
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
