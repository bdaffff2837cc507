// typical_p: the logits nearest to the one whose surprise is the entropy. They lie in a range around it, the center.
//
// The masses before each bucket bound the mass within a closeness c of the center from below (buckets inside) and from above
// (buckets that overlap). So few buckets on either side remain in which the wanted closeness can be.
var<private> center_distance: f32; // of the center from the largest logit
var<private> last_bucket: u32; // that tokens of the search lie in

fn near_bucket(c: f32) -> u32 { // where the range of closeness c begins
  return select(bucket_of(max(center_distance - c, 0.0)), 0u, center_distance <= c);
}

fn first_inside(c: f32) -> u32 {
  return select(near_bucket(c) + 1u, 0u, center_distance <= c);
}

fn far_bucket(c: f32) -> u32 { // where it ends
  return min(bucket_of(center_distance + c), last_bucket);
}

fn mass_between(first: u32, end: u32) -> f32 { // of the buckets [first, end)
  return select(0.0, mass_before[end] - mass_before[min(first, BUCKETS)], first < end);
}

// The largest closeness at which the mass inside, or that which overlaps, is less than `required`.
fn closeness_below(required: f32, inside: bool) -> f32 {
  var bits = 0u;
  for (var bit = 30u; bit < 32u; bit--) {
    let c = bitcast<f32>(bits | (1u << bit));
    let first = select(near_bucket(c), first_inside(c), inside);
    let mass = mass_between(first, far_bucket(c) + select(1u, 0u, inside));
    if (c < 3e38 && mass < required) {
      bits |= 1u << bit;
    }
  }
  return bitcast<f32>(bits);
}

// The keys of the range's ends. `sums`: from `lowest` on.
fn typical_range(typical_p: f32, lowest: u32, sums: Sums, t: u32) -> vec2u {
  last_bucket = bucket_of_key(lowest);
  center_distance = moment_from(lowest, sums, t) / sums.mass;
  let center = row_top - center_distance;
  let required = typical_p * sums.mass;
  let below = closeness_below(required, false);
  let above = bitcast<f32>(bitcast<u32>(closeness_below(required, true)) + 1u);
  let first = first_inside(below);
  let end = far_bucket(below);
  let near = places(near_bucket(above), min(first, end));
  let far = places(end, far_bucket(above) + 1u);
  let search = Search(false, true, center, near_edge(min(near_bucket(above), end)));
  let key = search_bound(search, required - mass_between(first, end), Elements(near, far, lowest), t);
  let closeness = select(-value_of(key), 3e38, key == 0u);
  var low = 0u; // the largest key below the range
  var high = 0u; // the largest in or below it
  for (var bit = 31u; bit < 32u; bit--) {
    let step = 1u << bit;
    low |= select(0u, step, center - value_of(low | step) > closeness);
    high |= select(0u, step, !(value_of(high | step) - center > closeness));
  }
  return vec2u(low + 1u, high);
}
