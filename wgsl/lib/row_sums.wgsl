// Sums over the TK threads of a row, of SLOTS numbers each: every thread keeps its part, and behind a barrier any thread
// may get the whole. With subgroups, lanes first exchange within the smallest subgroup that the device may use.
#if SG
const LANES_LEFT = (TK + SG - 1u) / SG;
#else
const LANES_LEFT = TK;
#endif
var<workgroup> red: array<f32, SLOTS * TR * LANES_LEFT>;

fn keep(slot: u32, part: f32, tk: u32, tr: u32) {
#if SG
  var sum = part;
  for (var width = 1u; width < min(SG, TK); width *= 2u) {
    sum += subgroupShuffleXor(sum, width);
  }
  if (tk % SG == 0u) {
    red[(tr * SLOTS + slot) * LANES_LEFT + tk / SG] = sum;
  }
#else
  red[(tr * SLOTS + slot) * LANES_LEFT + tk] = part;
#endif
}

fn kept(slot: u32, tr: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < LANES_LEFT; i++) {
    sum += red[(tr * SLOTS + slot) * LANES_LEFT + i];
  }
  return sum;
}
