// Sum over each slice of SLICE neighbouring threads (a power of two) of a workgroup of WG threads. With subgroups, lanes
// first shuffle within the device's smallest subgroup size, so the result is right for any subgroup size that the device
// uses. The order depends on SLICE alone, so kernels with other workgroups get equal bits.
var<workgroup> reduce_memory: array<f32, WG>;

fn slice_sum(value: f32, t: u32) -> f32 {
  var v = value;
  var width = 1u; // lanes that already hold their sum
#if SG
  for (; width < min(SG, SLICE); width *= 2u) {
    v += subgroupShuffleXor(v, width);
  }
#endif
  reduce_memory[t] = v;
  workgroupBarrier();
  for (; SLICE / width > 16u; width *= 2u) {
    v += reduce_memory[t ^ width];
    workgroupBarrier();
    reduce_memory[t] = v;
    workgroupBarrier();
  }
  v = 0.0;
  let first = t / SLICE * SLICE;
  for (var i = 0u; i < SLICE; i += width) { // at most 16 partial sums: each thread adds all of them
    v += reduce_memory[first + i];
  }
  workgroupBarrier();
  return v;
}
