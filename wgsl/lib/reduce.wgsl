// Sums over a workgroup of WG threads (a power of two). With subgroups, lanes first exchange within the smallest
// subgroup the device may use, so that the result holds for every size it does use.
var<workgroup> reduce_memory: array<f32, WG>;

fn workgroup_sum(mine: f32, t: u32) -> f32 {
  var v = mine;
  var width = 1u; // lanes that already hold their common sum
#if SG
  for (; width < min(SG, WG); width *= 2u) {
    v += subgroupShuffleXor(v, width);
  }
#endif
  reduce_memory[t] = v;
  workgroupBarrier();
  for (; WG / width > 16u; width *= 2u) {
    v += reduce_memory[t ^ width];
    workgroupBarrier();
    reduce_memory[t] = v;
    workgroupBarrier();
  }
  v = 0.0;
  for (var i = 0u; i < WG; i += width) { // few are left: each thread adds them all up
    v += reduce_memory[i];
  }
  workgroupBarrier();
  return v;
}
