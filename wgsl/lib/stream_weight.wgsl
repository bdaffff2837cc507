// The weight of one of several residual streams: factor * sigmoid(product * scale + base) + eps.
struct Params {
  part: u32, // the scale, and the products and bases, that count
  parts: u32, // how many there are
  factor: f32,
  eps: f32,
  products_stride: u32,
  streams_stride: u32,
  stride: u32, // of the rows that the streams are read to, or get
}
@bind var<uniform> p: Params;
@bind var<storage, read> products: array<f32>; // (n, parts * STREAMS)
@bind var<storage, read> terms: array<f32>; // a scale for each part; a base for each product

fn stream_weight(m: u32, stream: u32) -> f32 {
  let at = p.part * STREAMS + stream;
  let x = products[m * p.products_stride + at] * terms[p.part] + terms[p.parts + at];
  return p.factor / (1.0 + exp(-x)) + p.eps;
}
