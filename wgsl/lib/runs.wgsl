// The tokens of a batch that continue one sequence's state, and the half of its slot that a state is in (plan/states.py).
// A small batch has runs of one or more sequences; any other batch, also a packed one, is one run.
#include "lib/sequence.wgsl"
#include "lib/pages.wgsl"

// Whether token m is a run's first.
fn begins_run(m: u32) -> bool {
#if STATE_PER_TOKEN
  return m == 0u || seq_of(m - 1u) != seq_of(m);
#else
  return m == 0u;
#endif
}

// The token after the last one of the run that begins with token m.
fn run_end(m: u32) -> u32 {
#if STATE_PER_TOKEN
  var end = m + 1u;
  while (end < count() && seq_of(end) == seq_of(m)) {
    end++;
  }
  return end;
#else
  return count();
#endif
}

// Index, among the halves of all slots, of the one with the state after a position.
fn half_after(pos: u32, seq: u32) -> u32 {
  return 2u * page_of(0u, seq) + pos % 2u;
}
