// A row's logits by rank: how many tokens, and how much probability, are above a bound; and the bound for a given sum.
// A mass is a sum of exp(logit - top).
#include "lib/histogram.wgsl"
#include "lib/prefix.wgsl"
const EACH = BUCKETS / WG; // buckets of a thread
const BIN_BITS = countTrailingZeros(WG);
const NOT_FOUND = 0xffffffffu;
const LARGEST_SUM = 2147483648.0; // fixed point of the masses in `bins`
var<private> row: u32;
var<private> row_top: f32; // the largest logit
var<workgroup> count_before: array<u32, BUCKETS + 1>; // tokens of the buckets before each
var<workgroup> mass_before: array<f32, BUCKETS + 1>; // their mass
var<workgroup> bins: array<atomic<u32>, WG>;
var<workgroup> extremes: array<atomic<u32>, 2>;
var<workgroup> shared_range: vec2u;

struct Sums { // over the tokens with a key from some bound on
  count: f32,
  mass: f32,
  moment: f32, // sum of distance * exp(-distance), of the bound's bucket only: moment_from() has all
}

struct Elements { // the logits at two ranges of places
  near: vec2u, // first, end
  far: vec2u,
  lowest: u32, // logits with a smaller key do not belong to them
}

struct Search {
  counted: bool, // a token weighs 1, not exp(-distance)
  by_closeness: bool, // a token's key is that of -|logit - center|, not of its logit
  center: f32,
  edge: f32, // the smallest distance of the elements
}

fn mass_of(bucket: u32, fields: vec4u) -> f32 {
  let loss = f32(fields[LOSS]) * width_of(bucket) / UNITS;
  return exp(-near_edge(bucket)) * max(f32(fields[COUNT]) - loss, 0.0);
}

fn moment_of(bucket: u32) -> f32 {
  let fields = histogram[row * BUCKETS + bucket];
  let edge = near_edge(bucket);
  return edge * mass_of(bucket, fields) + exp(-edge) * f32(fields[MOMENT]) * width_of(bucket) / UNITS;
}

fn bucket_of_key(key: u32) -> u32 { // of a logit with this key
  let distance = row_top - value_of(key);
  return select(BUCKETS - 1u, bucket_of(max(distance, 0.0)), distance < 3e38); // NaN and infinity: the last one
}

// Prepares the functions below: counts and masses before each bucket.
fn load_ranks(m: u32, top: f32, t: u32) {
  row = m;
  row_top = top;
  var own = vec2f(0);
  for (var bucket = t * EACH; bucket < (t + 1u) * EACH; bucket++) {
    let fields = histogram[m * BUCKETS + bucket];
    count_before[bucket] = fields[COUNT];
    mass_before[bucket] = mass_of(bucket, fields);
    own += vec2f(f32(count_before[bucket]), mass_before[bucket]);
  }
  let sum = workgroup_prefix(own, t);
  var before = prefix_before(t);
  for (var bucket = t * EACH; bucket < (t + 1u) * EACH; bucket++) {
    let after = before + vec2f(f32(count_before[bucket]), mass_before[bucket]);
    count_before[bucket] = u32(before.x);
    mass_before[bucket] = before.y;
    before = after;
  }
  if (t == WG - 1u) {
    count_before[BUCKETS] = u32(sum.x);
    mass_before[BUCKETS] = sum.y;
  }
  workgroupBarrier();
}

// (the smallest of all threads' `least`, the largest of their `most`)
fn workgroup_range(least: u32, most: u32, t: u32) -> vec2u {
  if (t < 2u) {
    atomicStore(&extremes[t], NOT_FOUND);
  }
  workgroupBarrier();
  var lowest = least;
  var highest = ~most; // inverted: its minimum is searched, too
  var elected = true;
#if SG
  lowest = subgroupMin(lowest);
  highest = subgroupMin(highest);
  elected = subgroupElect();
#endif
  if (elected) {
    atomicMin(&extremes[0], lowest);
    atomicMin(&extremes[1], highest);
  }
  workgroupBarrier();
  if (t == 0u) {
    shared_range = vec2u(atomicLoad(&extremes[0]), ~atomicLoad(&extremes[1]));
  }
  return workgroupUniformLoad(&shared_range);
}

fn places(first: u32, end: u32) -> vec2u { // of the logits in the buckets [first, end)
  return select(vec2u(0), vec2u(count_before[first], count_before[max(first, end)]), first < end);
}

fn logit_at(i: u32, elements: Elements) -> f32 {
  let count = elements.near.y - elements.near.x;
  return sorted[row * p.vocab + select(elements.far.x + i - count, elements.near.x + i, i < count)];
}

fn size_of(elements: Elements) -> u32 {
  return elements.near.y - elements.near.x + elements.far.y - elements.far.x;
}

fn sums_from(key: u32, t: u32) -> Sums { // over the tokens with at least this key; 0: over all
  let bucket = bucket_of_key(key);
  let edge = near_edge(bucket);
  let elements = Elements(places(bucket, bucket + 1u), vec2u(0), key);
  let scale = LARGEST_SUM / f32(max(size_of(elements), 1u));
  if (t < 3u) {
    atomicStore(&bins[t], 0u);
  }
  workgroupBarrier();
  for (var i = t; i < size_of(elements); i += WG) {
    let logit = logit_at(i, elements);
    if (key_of(logit) >= key) {
      let offset = max(row_top - logit - edge, 0.0);
      atomicAdd(&bins[0], 1u);
      atomicAdd(&bins[1], u32(exp(-offset) * scale));
      atomicAdd(&bins[2], u32(offset * exp(-offset) * scale));
    }
  }
  workgroupBarrier();
  let unit = exp(-edge) / scale;
  let mass = f32(atomicLoad(&bins[1])) * unit;
  let moment = edge * mass + f32(atomicLoad(&bins[2])) * unit;
  let count = f32(count_before[bucket] + atomicLoad(&bins[0]));
  workgroupBarrier();
  return Sums(count, mass_before[bucket] + mass, moment);
}

fn moment_from(key: u32, sums: Sums, t: u32) -> f32 { // over the tokens with at least this key. `sums`: sums_from(key)
  var moment = 0.0;
  for (var bucket = t * EACH; bucket < min((t + 1u) * EACH, bucket_of_key(key)); bucket++) {
    moment += moment_of(bucket);
  }
  return workgroup_sum(moment, t) + sums.moment;
}

// The largest key such that the tokens with this key or a larger one are `required` or more (`counted`), or have that mass.
// 0: all of them are less.
fn bound_of(counted: bool, required: f32, t: u32) -> u32 {
  var reached = NOT_FOUND;
  for (var bucket = (t + 1u) * EACH; bucket > t * EACH; bucket--) {
    let after = select(mass_before[bucket], f32(count_before[bucket]), counted);
    if (after >= required && count_before[bucket] > count_before[bucket - 1u]) {
      reached = bucket - 1u;
    }
  }
  let bucket = workgroup_range(reached, 0u, t).x;
  if (bucket == NOT_FOUND) {
    return 0u;
  }
  let before = select(mass_before[bucket], f32(count_before[bucket]), counted);
  let search = Search(counted, false, 0.0, near_edge(bucket));
  return search_bound(search, required - before, Elements(places(bucket, bucket + 1u), vec2u(0), 0u), t);
}

// bound_of() among a few elements: their keys' range is divided into bins, then the range of the bin that reaches
// `required`, until it has one key left. 0: there are no elements.
fn search_bound(search: Search, required: f32, elements: Elements, t: u32) -> u32 {
  let scale = select(LARGEST_SUM / f32(max(size_of(elements), 1u)), 1.0, search.counted);
  let unit = select(exp(-search.edge) / scale, 1.0, search.counted);
  var low = 0u;
  var high = NOT_FOUND;
  var sum = 0.0; // of the keys above `high`
  loop {
    var least = NOT_FOUND;
    var most = 0u;
    for (var i = t; i < size_of(elements); i += WG) {
      let key = search_key(search, logit_at(i, elements), elements.lowest);
      if (key >= low && key <= high) {
        least = min(least, key);
        most = max(most, key);
      }
    }
    let range = workgroup_range(least, most, t);
    low = range.x;
    high = range.y;
    if (low >= high) {
      return high;
    }
    let shift = max(32u - countLeadingZeros(high - low), BIN_BITS) - BIN_BITS;
    atomicStore(&bins[t], 0u);
    workgroupBarrier();
    for (var i = t; i < size_of(elements); i += WG) {
      let logit = logit_at(i, elements);
      let key = search_key(search, logit, elements.lowest);
      if (key >= low && key <= high) {
        let weight = select(exp(-max(row_top - logit - search.edge, 0.0)) * scale, 1.0, search.counted);
        atomicAdd(&bins[WG - 1u - ((key - low) >> shift)], max(u32(weight), 1u));
      }
    }
    workgroupBarrier();
    let own = atomicLoad(&bins[t]);
    let reached = sum + workgroup_prefix(vec2f(f32(own) * unit, 0), t).x >= required;
    // the first bin that reaches it, or the last one where rounding leaves too little
    let bin = workgroup_range(select(NOT_FOUND, select(2u * WG - t, t, reached), own > 0u), 0u, t).x;
    let place = select(bin, 2u * WG - bin, bin > WG);
    sum += prefix_before(place).x;
    low += (WG - 1u - place) << shift;
    high = min(high, low + (1u << shift) - 1u);
  }
  return high; // not reached: Firefox's compiler requires a return at the end
}

fn search_key(search: Search, logit: f32, lowest: u32) -> u32 { // 0: the element does not belong to the search
  let key = key_of(logit);
  let own = select(key, key_of(-abs(logit - search.center)), search.by_closeness);
  return select(own, 0u, key < lowest);
}
