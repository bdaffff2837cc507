// w_fetch and w_dot, one group at a time, for a fragment that defines w_load.
#include "quants/groups.wgsl"
alias Packed = Group;

fn w_fetch(row: u32, g: u32) -> Packed {
  return w_load(row, g);
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  return group_dot(w, x[0]);
}
