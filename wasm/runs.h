// Runs: tokens of the batch that continue one sequence's state (wgsl/lib/runs.wgsl), and where the state is.
#pragma once

#include "ops.h"

INLINE u32 begins_run(u32 state, u32 per_token, u32 m) {
  return !m || (per_token && sequence(state, per_token, m - 1) != sequence(state, per_token, m));
}

INLINE u32 run_end(u32 state, u32 per_token, u32 m) {
  const u32 n = batch_size(state);
  if (!per_token) return n;
  u32 end = m + 1;
  while (end < n && sequence(state, per_token, end) == sequence(state, per_token, m)) end++;
  return end;
}

// The half of a slot that has the state after a position.
INLINE u32 half_after(u32 state, u32 table, u32 pages, u32 seq, u32 pos) {
  return 2 * tables(state)[table + seq * pages] + pos % 2;
}

#define OFFSET(r, m) (position(r->state, r->per_token, m) - segment(r->state, r->segments, m).first)
#define HALF_AFTER(r, m, back)                                                                                         \
  half_after(r->state, r->table, r->pages, sequence(r->state, r->per_token, m),                                        \
             position(r->state, r->per_token, m) - (back))
