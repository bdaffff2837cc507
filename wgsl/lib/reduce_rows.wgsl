// Maximum and sum over a workgroup of WG threads (a power of two), for each of G rows. Every thread puts its value; after
// a barrier, any thread can get the result. Lanes first shuffle within the device's smallest subgroup size, so the result
// is right for any subgroup size that the device uses.
#if SG
const ROW_LANES = min(SG, WG);
#else
const ROW_LANES = 1u;
#endif
const ROW_PARTS = WG / ROW_LANES;
var<workgroup> rows_memory: array<f32, G * ROW_PARTS>;

fn rows_put_max(g: u32, value: f32, t: u32) {
  var v = value;
#if SG
  for (var width = 1u; width < ROW_LANES; width *= 2u) {
    v = max(v, subgroupShuffleXor(v, width));
  }
#endif
  if (t % ROW_LANES == 0u) {
    rows_memory[g * ROW_PARTS + t / ROW_LANES] = v;
  }
}

fn rows_get_max(g: u32) -> f32 {
  var v = rows_memory[g * ROW_PARTS];
  for (var i = 1u; i < ROW_PARTS; i++) {
    v = max(v, rows_memory[g * ROW_PARTS + i]);
  }
  return v;
}

fn rows_put_sum(g: u32, value: f32, t: u32) {
  var v = value;
#if SG
  for (var width = 1u; width < ROW_LANES; width *= 2u) {
    v += subgroupShuffleXor(v, width);
  }
#endif
  if (t % ROW_LANES == 0u) {
    rows_memory[g * ROW_PARTS + t / ROW_LANES] = v;
  }
}

fn rows_get_sum(g: u32) -> f32 {
  var v = 0.0;
  for (var i = 0u; i < ROW_PARTS; i++) {
    v += rows_memory[g * ROW_PARTS + i];
  }
  return v;
}
