// A group at a time, of a fragment that defines w_load.
#include "quants/groups.wgsl"
alias Packed = Group;

fn w_fetch(row: u32, g: u32) -> Packed {
  return w_load(row, g);
}

fn w_meet(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  return meet(w, x[0]);
}
