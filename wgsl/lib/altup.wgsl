// What AltUp's router makes of a token: a number within -1 and 1 for each stream.
@bind var<storage, read> router: array<f32>; // (n, STREAMS padded to 32)

fn routed(m: u32) -> array<f32, STREAMS> {
  var values: array<f32, STREAMS>;
  for (var s = 0u; s < STREAMS; s++) {
    let logit = p.scale * router[m * ((STREAMS + 31u) / 32u * 32u) + s];
    values[s] = 1.0 - 2.0 / (1.0 + exp(2.0 * logit)); // the built-in tanh may overflow
  }
  return values;
}
