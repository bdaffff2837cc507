// The States between a draft model's steps and the model's own (draft.py). One thread.
//
// VERIFY 0: the draft model is to compute the newest ROWS tokens. Of two, it lacks the first where its whole draft was
// accepted, and computes it once more elsewhere. VERIFY 1: its decode steps have moved the State to the end of the draft;
// the newest token and the draft become a small batch.
#param VERIFY
#param ROWS // tokens of the first step at most
#param MAX_SMALL_BATCH // tokens of the batch at most

#include "lib/state.wgsl"
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#include "lib/drafting.wgsl"

@compute @workgroup_size(1)
fn main() {
  let seq = state[0].seq;
#if VERIFY
  let first = drafting[seq].newest;
  let n = min(state[0].pos - first + 1u, MAX_SMALL_BATCH);
#else
  drafting[seq].newest = state[0].pos;
  let n = min(state[0].pos + 1u, ROWS);
  let first = state[0].pos + 1u - n;
#endif
  for (var m = 0u; m < n; m++) {
    state[m].pos = first + m;
    state[m].seq = seq;
  }
  state[0].n = n;
}
