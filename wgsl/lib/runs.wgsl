// The tokens of a batch that continue one sequence. A small batch has runs of one or more sequences; any other batch, also
// a packed one, is one run.
#include "lib/sequence.wgsl"

// Whether token m is a run's first.
fn begins_run(m: u32) -> bool {
#if STATE_PER_TOKEN
  return m == 0u || seq_of(m - 1u) != seq_of(m);
#else
  return m == 0u;
#endif
}

// The token after the last one of the run that token m is in.
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
