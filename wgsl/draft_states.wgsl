// The States between the steps of drafts by a model or an MTP layer (draft.py). One thread. STAGE:
// "begin": before the first step of an MTP layer, which has the newest token of each sequence.
// "pairs": before a draft model's, which also has the token before it. The model lacks that one where its whole draft was
//   accepted, and else computes it once more. Of one sequence, the newest token is last; of several, the newest ones are first.
// "newest": after the first step of several sequences' pairs: the newest tokens are sampled from.
// "end": after the last step, which has moved each State to the end of its draft. draft_rows.wgsl needs the drafts' lengths.
#param STAGE
#param MAX_SMALL_BATCH // tokens of the batch at most

#include "lib/state.wgsl"
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#if STAGE != "newest"
#include "lib/drafting.wgsl"
#endif

@compute @workgroup_size(1)
fn main() {
  let n = state[0].n;
#if STAGE == "newest"
  state[0].n = n / 2u;
#else
  for (var m = 0u; m < n; m++) {
    let seq = state[m].seq;
#if STAGE == "end"
    drafting[seq].count = state[m].pos - drafting[seq].newest;
#else
    drafting[seq].newest = state[m].pos;
#endif
  }
#endif
#if STAGE == "pairs"
  if (n == 1u && state[0].pos == 0u) { // there is no token before
    return;
  }
  for (var m = 0u; m < n; m++) {
    let pos = state[m].pos;
    let before = max(pos, 1u) - 1u;
    state[n + m].pos = select(before, pos, n == 1u);
    state[n + m].seq = state[m].seq;
    if (n == 1u) {
      state[m].pos = before;
    }
  }
  state[0].n = 2u * n;
#endif
}
