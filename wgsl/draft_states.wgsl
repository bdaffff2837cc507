// The States before the first step of drafts by a model or an MTP layer; after the last step, the lengths of the drafts, of
// which draft_rows.wgsl makes the batch that verifies them (draft.py). One thread.
//
// VERIFY 0: the newest ROWS tokens are to be computed. Two, where a draft model drafts for one sequence: it lacks the first
// of them where its whole draft was accepted, and else computes it once more. One: a token of each sequence.
// VERIFY 1: the steps have moved each sequence's State to the end of its draft.
#param VERIFY
#param ROWS
#param MAX_SMALL_BATCH // tokens of the batch at most

#include "lib/state.wgsl"
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#include "lib/drafting.wgsl"

@compute @workgroup_size(1)
fn main() {
  let n = state[0].n;
  for (var m = 0u; m < n; m++) {
    let seq = state[m].seq;
#if VERIFY
    drafting[seq].count = state[m].pos - drafting[seq].newest;
#else
    drafting[seq].newest = state[m].pos;
#endif
  }
#if not VERIFY and ROWS == 2
  let pos = state[0].pos;
  if (pos > 0u) {
    state[0].pos = pos - 1u;
    state[0].n = 2u;
    state[1].pos = pos;
    state[1].seq = state[0].seq;
  }
#endif
}
