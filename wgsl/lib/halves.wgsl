// The half of a sequence's slot that a state is in (plan/states.py), and the runs of tokens that continue it.
#include "lib/runs.wgsl"
#include "lib/pages.wgsl"

// Index, among the halves of all slots, of the one with the state after a position.
fn half_after(pos: u32, seq: u32) -> u32 {
  return 2u * page_of(0u, seq) + pos % 2u;
}
