// Sums of SLOTS numbers over the TK threads of a row. Every thread puts its part; after a barrier, any thread can get the
// sum. With subgroups, lanes first shuffle within the smallest subgroup size of the device.
#param LOW_RANK_THREADS // threads beyond those of the TR rows, which put nothing
#if SG
const LANES_LEFT = (TK + SG - 1u) / SG;
#else
const LANES_LEFT = TK;
#endif
var<workgroup> red: array<f32, SLOTS * TR * LANES_LEFT>;

fn sum_put(slot: u32, part: f32, tk: u32, tr: u32) {
#if SG
  var sum = part;
  for (var width = 1u; width < min(SG, TK); width *= 2u) {
    sum += subgroupShuffleXor(sum, width);
  }
#if LOW_RANK_THREADS
  if (tr >= TR) {
    return;
  }
#endif
  if (tk % SG == 0u) {
    red[(tr * SLOTS + slot) * LANES_LEFT + tk / SG] = sum;
  }
#else
#if LOW_RANK_THREADS
  if (tr >= TR) {
    return;
  }
#endif
  red[(tr * SLOTS + slot) * LANES_LEFT + tk] = part;
#endif
}

fn sum_get(slot: u32, tr: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < LANES_LEFT; i++) {
    sum += red[(tr * SLOTS + slot) * LANES_LEFT + i];
  }
  return sum;
}
