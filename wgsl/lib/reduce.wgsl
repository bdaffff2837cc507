// Sum over a workgroup of WG threads (a power of two). With subgroups, lanes first shuffle within the device's smallest
// subgroup size, so the result is right for any subgroup size that the device uses.
var<workgroup> reduce_memory: array<f32, WG>;

fn workgroup_sum(value: f32, t: u32) -> f32 {
  var v = value;
  var width = 1u; // lanes that already hold their sum
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
  for (var i = 0u; i < WG; i += width) { // at most 16 partial sums: each thread adds all of them
    v += reduce_memory[i];
  }
  workgroupBarrier();
  return v;
}
