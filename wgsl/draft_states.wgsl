// The States between the steps of drafts by a model or an MTP layer (plan/draft.py). One thread. STAGE:
// "begin": before the first step of an MTP layer, which has the newest token of each sequence.
// "pairs": before a draft model's, which also has the token before it. The model lacks that one where its whole draft was
//   accepted, and else computes it once more. Of one sequence, the newest token is last; of several, the newest ones are first.
// "newest": after the first step of several sequences' pairs: the newest tokens are sampled from.
// "block": before the one step of a model that drafts k tokens of each sequence at once: k rows of masked tokens after the
//   newest one of each sequence, and last the rows of the newest ones, which are not sampled from.
// "masked": after its layers: the masked tokens are left, each at the position before the token that its row predicts.
// "end": after the last step, which has moved each State to the end of its draft. draft_rows.wgsl needs the drafts' lengths.
#param STAGE
#param MAX_SMALL_BATCH // tokens of the batch at most
#param ANCHOR // not 0: index in state.tables of the first sequence's anchor (lib/sequence.wgsl), which "begin" sets
#if STAGE == "block"
#param SHORT_BATCH // rows at most
#param TOKENS // capacity of a sequence in `tokens`
#param MASK // the token that stands for one that is to be drafted

struct Params {
  drafts: u32, // k
}
#endif
#include "lib/state.wgsl"
#if STAGE == "block"
@bind var<uniform> p: Params;
@bind var<storage, read_write> tokens: array<u32>;
#endif
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
#if STAGE == "masked"
  var masked = 0u;
  for (var m = 0u; m < n; m++) {
    let pos = state.tokens[m].pos;
    if (pos > drafting[state.tokens[m].seq].newest) {
      state.tokens[m].pos = pos - 1u;
      masked++;
    }
  }
  state.tokens[0].n = masked;
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
#endif
#if STAGE == "block"
  var newest: array<State, SHORT_BATCH>;
  for (var m = 0u; m < n; m++) {
    newest[m] = state.tokens[m];
  }
  for (var m = 0u; m < n; m++) {
    for (var i = 0u; i < p.drafts; i++) {
      let row = m * p.drafts + i;
      state.tokens[row].pos = newest[m].pos + 1u + i;
      state.tokens[row].seq = newest[m].seq;
      tokens[newest[m].seq * TOKENS + newest[m].pos + 1u + i] = MASK;
    }
    state.tokens[n * p.drafts + m].pos = newest[m].pos;
    state.tokens[n * p.drafts + m].seq = newest[m].seq;
  }
  state.tokens[0].n = n * (1u + p.drafts);
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
