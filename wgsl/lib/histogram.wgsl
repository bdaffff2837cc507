// Buckets of a row's logits by their distance from the row's largest logit: exponent and first bits of the mantissa of
// distance + NEAREST. So buckets are narrow where probabilities are large: 1/256 wide at the top, 1/32 at a distance of 5.
// A bucket has four u32. Their sums are integers, so they do not depend on the order of additions, nor does a sampled token.
#param BUCKETS // of a row
const NEAREST = 0.5;
const NEAREST_BITS = 0x3f000000u;
const BUCKET_BITS = 16u; // bits of a float below a bucket's
const UNITS = 8192.0; // fixed point of LOSS and MOMENT: 2^13, for up to 2^19 tokens
// `offset`: distance from the bucket's near edge.
const COUNT = 0u; // tokens
const LOSS = 1u; // sum of (1 - exp(-offset)) / width
const MOMENT = 2u; // sum of offset * exp(-offset) / width; only where needs_entropy()
const CURSOR = 3u; // tokens that sample_sort.wgsl has placed

fn bucket_of(distance: f32) -> u32 {
  return min((max(bitcast<u32>(distance + NEAREST), NEAREST_BITS) - NEAREST_BITS) >> BUCKET_BITS, BUCKETS - 1u);
}

fn near_edge(bucket: u32) -> f32 {
  return bitcast<f32>((bucket << BUCKET_BITS) + NEAREST_BITS) - NEAREST;
}

fn width_of(bucket: u32) -> f32 {
  return near_edge(bucket + 1u) - near_edge(bucket);
}
