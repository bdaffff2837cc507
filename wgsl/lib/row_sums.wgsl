// Sums of SLOTS numbers over the TK threads of a row. TK is a power of two. Every thread puts its parts; after a barrier, any
// thread can get a sum. With subgroups, lanes first add within the smallest subgroup size of the device: in the same order
// for each sum, however many there are.
#param TOKENS // that the R rows of a thread are multiplied with
#if SG
const LANES_LEFT = (TK + SG - 1u) / SG;
const SUM_LANES = min(SG, TK); // that add with each other
#else
const LANES_LEFT = TK;
#endif
var<workgroup> red: array<f32, SLOTS * TR * LANES_LEFT>;

fn red_put(slot: u32, sum: f32, tk: u32, tr: u32) {
#if SG
  red[(tr * SLOTS + slot) * LANES_LEFT + tk / SG] = sum;
#else
  red[(tr * SLOTS + slot) * LANES_LEFT + tk] = sum;
#endif
}

fn sum_put(slot: u32, part: f32, tk: u32, tr: u32) {
#if SG
  var sum = part;
  for (var width = 1u; width < SUM_LANES; width *= 2u) {
    sum += subgroupShuffleXor(sum, width);
  }
  if (tk % SG == 0u) {
    red_put(slot, sum, tk, tr);
  }
#else
  red_put(slot, part, tk, tr);
#endif
}

// Puts the parts of the first R * TOKENS sums (a power of two) by recursive halving: in each step, two lanes exchange their parts
// of half of the sums. Eight sums of 32 lanes take 9 shuffles in place of 40.
fn sums_put(parts: array<f32, R * TOKENS>, tk: u32, tr: u32) {
#if SG
  var sums = parts;
  var slot = 0u; // of the lane's first sum
#for step in 7
#if (1 << ${step}) < SG and (1 << ${step}) < TK
#if R * TOKENS >> (${step} + 1)
  let upper${step} = (tk & (1u << ${step}u)) != 0u;
  slot += select(0u, (R * TOKENS) >> (${step}u + 1u), upper${step});
#for i in R * TOKENS >> (${step} + 1)
  {
    const LATER = ${i}u + ((R * TOKENS) >> (${step}u + 1u));
    let other = subgroupShuffleXor(select(sums[LATER], sums[${i}u], upper${step}), 1u << ${step}u);
    sums[${i}u] = select(sums[${i}u], sums[LATER], upper${step}) + other;
  }
#endfor
#else
  sums[0] += subgroupShuffleXor(sums[0], 1u << ${step}u);
#endif
#endif
#endfor
  const HALVED = min(SUM_LANES, R * TOKENS); // lanes with different sums
  if (tk % SG / HALVED == 0u) {
#for i in R * TOKENS
    if (${i}u * HALVED < R * TOKENS) {
      red_put(slot + ${i}u, sums[${i}u], tk, tr);
    }
#endfor
  }
#else
#for i in R * TOKENS
  red_put(${i}u, parts[${i}u], tk, tr);
#endfor
#endif
}

fn sum_get(slot: u32, tr: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < LANES_LEFT; i++) {
    sum += red[(tr * SLOTS + slot) * LANES_LEFT + i];
  }
  return sum;
}
