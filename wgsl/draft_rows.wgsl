// The next small batch after advance.wgsl: the newest token of each sequence, followed by its draft.
//
// Each draft gets a row in turn until the batch is full, so that a draft that is likely wrong, and therefore short, takes
// few rows from the others. One thread.
#param MAX_SMALL_BATCH
#param SHORT_BATCH // tokens of the batch at most

#include "lib/state.wgsl"
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
#include "lib/drafting.wgsl"

@compute @workgroup_size(1)
fn main() {
  var sequences: array<u32, SHORT_BATCH>;
  var found: array<u32, SHORT_BATCH>; // tokens of the draft
  var given: array<u32, SHORT_BATCH>; // rows for them
  var count = 0u;
  for (var m = 0u; m < state[0].n; m++) {
    let seq = state[m].seq;
    if (m == 0u || state[m - 1u].seq != seq) {
      sequences[count] = seq;
      found[count] = drafting[seq].count;
      count++;
    }
  }
  var free = SHORT_BATCH - count;
  for (var turn = 0u; turn < SHORT_BATCH; turn++) {
    for (var i = 0u; i < count && free > 0u; i++) {
      if (found[i] > turn) {
        given[i]++;
        free--;
      }
    }
  }
  var rows = 0u;
  for (var i = 0u; i < count; i++) {
    for (var m = 0u; m <= given[i]; m++) {
      state[rows].pos = drafting[sequences[i]].newest + m;
      state[rows].seq = sequences[i];
      rows++;
    }
  }
  state[0].n = rows;
}
