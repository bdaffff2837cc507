// Maxima and sums over a workgroup of WG threads (a power of two), for G values of each thread at once.
#if SG
const ROW_LANES = min(SG, WG); // lanes that exchange among themselves, whatever subgroup size the device chooses
#else
const ROW_LANES = 1u;
#endif
const ROW_PARTS = WG / ROW_LANES;
var<workgroup> rows_memory: array<f32, G * ROW_PARTS>;

fn rows_max(mine: array<f32, G>, t: u32) -> array<f32, G> {
  var v = mine;
  for (var g = 0u; g < G; g++) {
#if SG
    for (var width = 1u; width < ROW_LANES; width *= 2u) {
      v[g] = max(v[g], subgroupShuffleXor(v[g], width));
    }
#endif
    if (t % ROW_LANES == 0u) {
      rows_memory[g * ROW_PARTS + t / ROW_LANES] = v[g];
    }
  }
  workgroupBarrier();
  for (var g = 0u; g < G; g++) {
    for (var i = 0u; i < ROW_PARTS; i++) {
      v[g] = max(v[g], rows_memory[g * ROW_PARTS + i]);
    }
  }
  workgroupBarrier();
  return v;
}

fn rows_sum(mine: array<f32, G>, t: u32) -> array<f32, G> {
  var v = mine;
  for (var g = 0u; g < G; g++) {
#if SG
    for (var width = 1u; width < ROW_LANES; width *= 2u) {
      v[g] += subgroupShuffleXor(v[g], width);
    }
#endif
    if (t % ROW_LANES == 0u) {
      rows_memory[g * ROW_PARTS + t / ROW_LANES] = v[g];
    }
  }
  workgroupBarrier();
  for (var g = 0u; g < G; g++) {
    v[g] = 0.0;
    for (var i = 0u; i < ROW_PARTS; i++) {
      v[g] += rows_memory[g * ROW_PARTS + i];
    }
  }
  workgroupBarrier();
  return v;
}
