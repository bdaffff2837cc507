// The States between the steps of drafts by a model or an MTP layer (draft.py). One thread. STAGE:
// "begin": before the first step of an MTP layer, which has the newest token of each sequence.
// "pairs": before a draft model's, which also has the token before it. The model lacks that one where its whole draft was
//   accepted, and else computes it once more. Of one sequence, the newest token is last; of several, the newest ones are first.
// "newest": after the first step of several sequences' pairs: the newest tokens are sampled from.
// "end": after the last step, which has moved each State to the end of its draft. draft_rows.wgsl needs the drafts' lengths.
#param STAGE
#param MAX_SMALL_BATCH // tokens of the batch at most
#param ANCHOR // not 0: index in state.tables of the first sequence's anchor (lib/sequence.wgsl), which "begin" sets

#include "lib/state.wgsl"
@bind var<storage, read_write> state: States;
#if STAGE != "newest"
#include "lib/drafting.wgsl"
#endif

@compute @workgroup_size(1)
fn main() {
  let n = state.tokens[0].n;
#if STAGE == "newest"
  state.tokens[0].n = n / 2u;
#else
  for (var m = 0u; m < n; m++) {
    let seq = state.tokens[m].seq;
#if STAGE == "end"
    drafting[seq].count = state.tokens[m].pos - drafting[seq].newest;
#else
    drafting[seq].newest = state.tokens[m].pos;
#if ANCHOR
    state.tables[ANCHOR + seq] = state.tokens[m].pos;
#endif
#endif
  }
#endif
#if STAGE == "pairs"
  if (n == 1u && state.tokens[0].pos == 0u) { // there is no token before
    return;
  }
  for (var m = 0u; m < n; m++) {
    let pos = state.tokens[m].pos;
    let before = max(pos, 1u) - 1u;
    state.tokens[n + m].pos = select(before, pos, n == 1u);
    state.tokens[n + m].seq = state.tokens[m].seq;
    if (n == 1u) {
      state.tokens[m].pos = before;
    }
  }
  state.tokens[0].n = 2u * n;
#endif
}
