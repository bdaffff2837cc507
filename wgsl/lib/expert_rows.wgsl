// Rows of a mixture's matrices for the experts that a token has chosen: part of matvec.wgsl for experts.wgsl.
@bind var<storage, read> chosen: array<u32>; // (n, USED)
#if SUM
#if BIAS or not ROUNDED_BEFORE
@bind var<storage, read> weights: array<f32>; // (n, USED)
#endif
const X_GROUPS = USED * W_GROUPS;
#else
const X_GROUPS = W_GROUPS;
#endif

fn expert_row(row: u32, choice: u32) -> u32 {
  return (row / ROWS * EXPERTS + chosen[choice]) * ROWS + row % ROWS;
}
#if not ROUNDED_BEFORE

// Factor of group g of x: a sum's weight.
fn x_factor(g: u32, choice: u32) -> f32 {
#if SUM
  return weights[choice + g / W_GROUPS];
#else
  return 1.0;
#endif
}
#endif
#if SCALES

fn expert_scale(row: u32, choice: u32) -> f32 {
  return scales[row / ROWS * EXPERTS + chosen[choice]];
}
#endif
#if BIAS

fn expert_bias(row: u32, choice: u32) -> f32 {
  const STRIDE = (ROWS + 31u) / 32u * 32u;
#if SUM
  var sum = 0.0;
  for (var k = 0u; k < USED; k++) {
    // A compiler contracts a product and a sum in one kernel and not in another: a token alone would have other bits.
    sum = fma(weights[choice + k], bias[chosen[choice + k] * STRIDE + row], sum);
  }
  return sum;
#else
  return bias[(row / ROWS * EXPERTS + chosen[choice]) * STRIDE + row % ROWS];
#endif
}
#endif
