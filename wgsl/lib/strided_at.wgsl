// Vector of x for vector i of part g of a row of float weights: see lib/strided.wgsl.
#param QUANT
fn strided_at(g: u32, i: u32) -> u32 {
#if QUANT == "f32"
  return i * W_GROUPS + g;
#else
  return 2u * (i / 2u * W_GROUPS + g) + i % 2u;
#endif
}
