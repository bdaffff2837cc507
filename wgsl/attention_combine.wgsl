// y = (sum over splits i of w_i * sum_i) / (sum over splits i of w_i * denominator_i), w_i = exp(max_i - max): joins the
// partial results of attention_decode.wgsl. Grid (query heads, 1, tokens). A workgroup reads LANES splits in parallel; a
// thread sums four dimensions.
#param HEAD_DIM
#param TS // positions of a tile in attention_decode.wgsl
#param SPLIT // splits of a key/value head's positions
#param LANES // splits that are read in parallel
#param WINDOW // positions that a token sees, itself included; 0: all
#param CHUNKED // see lib/visible.wgsl
#param FRESH // 1: additional workgroups, after the heads' ones, store the token's keys and values in a q8_0 cache
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax

struct Params {
  n_head: u32,
  y_stride: u32, // floats between tokens of y
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> parts: array<vec4f>; // (n, n_head, SPLIT, VECS + 1): sum, then (maximum, denominator)
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (n_head)
#endif
@bind var<storage, read_write> y: array<vec4f>; // (n, y_stride)
#include "lib/attention_split.wgsl"
#include "lib/merged_splits.wgsl"
#if FRESH
#include "lib/kv_store.wgsl"
#endif

var<workgroup> sums: array<vec4f, LANES * VECS>;
var<workgroup> totals: array<f32, LANES * VECS>;
var<workgroup> stats: array<vec2f, SPLIT>; // (maximum, denominator) of each split

@compute @workgroup_size(VECS, LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_id) id: vec3u) {
  if (wid.z >= count()) {
    return;
  }
#if FRESH
  if (wid.x >= p.n_head) {
    let i = ((wid.x - p.n_head) * LANES + id.y) * VECS + id.x;
    if (i < 2u * GROUPS) {
      kv_store(i, wid.z);
    }
    return;
  }
#endif
  let seen = visible_range(wid.z);
  let length = seen.y - seen.x;
  let size = split_size(length);
  let used = (length + size - 1u) / size;
  let base = (wid.z * p.n_head + wid.x) * SPLIT;
  let to = wid.z * (p.y_stride / 4u) + wid.x * VECS + id.x;
  if (used <= MERGED) { // uniform: state does not change within a dispatch
    if (id.y == 0u) {
      y[to] = merged(base, id.x, used, wid.x);
    }
    return;
  }
  for (var i = id.y * VECS + id.x; i < SPLIT; i += VECS * LANES) {
    stats[i] = vec2f(-1e30, 0.0);
    if (i < used) {
      stats[i] = parts[(base + i) * (VECS + 1u) + VECS].xy;
    }
  }
  workgroupBarrier();
  var top = -1e30;
#for k in (SPLIT + 7) // 8
  if (${k} * 8u < used) { // uniform; eight loads in flight
#for i in 8 * ${k}, 8 * ${k} + 8 if 8 * ${k} + 8 < SPLIT else SPLIT
    top = max(top, stats[${i}].x);
#endfor
  }
#endfor
#if SINKS
  top = max(top, sinks[wid.x]);
#endif
  var total = 0.0;
  var sum = vec4f(0);
  for (var i = id.y; i < used; i += 2u * LANES) { // two loads in flight
    let j = min(i + LANES, used - 1u);
    let a = parts[(base + i) * (VECS + 1u) + id.x];
    let b = parts[(base + j) * (VECS + 1u) + id.x];
    let wa = exp(stats[i].x - top);
    let wb = select(0.0, exp(stats[j].x - top), i + LANES < used);
    sum += a * wa + b * wb;
    total += stats[i].y * wa + stats[j].y * wb;
  }
  sums[id.y * VECS + id.x] = sum;
  totals[id.y * VECS + id.x] = total;
  workgroupBarrier();
  if (id.y == 0u) {
    for (var l = 1u; l < LANES; l++) {
      sum += sums[l * VECS + id.x];
      total += totals[l * VECS + id.x];
    }
#if SINKS
    total += exp(sinks[wid.x] - top);
#endif
    y[to] = sum / total;
  }
}
