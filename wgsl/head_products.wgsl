// y[m, h] = W[h] x[m, h]: every head's own matrix times its own part of a row. Grid (rows of a head / (WG / TK), heads,
// tiles of TM tokens). A workgroup has WG / TK rows; TK threads share a row's products with the tile's tokens.
// MERGED: x is not bound; the workgroup joins one token's splits of attention itself (lib/merged_splits.wgsl). TM is 1. x_first
// and x_head count columns of y of attention_combine.wgsl.
#param QUANT // fragment of wgsl/quants that reads W
#param HEADS
#param ROWS // of a head's matrix
#param COLS // of a head's matrix
#param TM // tokens of a tile
#param TK // threads that share a row
#param WG
#param X16 // 1: x is f16
#param Y16 // 1: y is f16
#if X16
#param F16
#endif

struct Params {
  x_stride: u32, // numbers between tokens of x
  x_first: u32, // the first head's column of x
  x_head: u32, // columns between heads of x
  y_stride: u32,
  y_first: u32,
  y_head: u32,
  w_first: u32, // the first head's row of W
  w_head: u32, // rows between heads of W
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
#if MERGED
#include "lib/splits_input.wgsl" with VECS=HEAD_VECS
#else
#if X16
@bind var<storage, read> x: array<f16>;
#else
@bind var<storage, read> x: array<f32>;
#endif
#endif
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#include "lib/result.wgsl"

const VECS = 8u * W_GROUPS;
const LANES = WG / TK; // rows of a workgroup
var<workgroup> xs: array<vec4f, TM * VECS>;
var<workgroup> sums: array<f32, TM * WG>;

#if not MERGED
fn x_at(m: u32, head: u32, column: u32) -> f32 { // zero after the last column
  if (m >= count() || column >= COLS) {
    return 0.0;
  }
  return f32(x[m * p.x_stride + p.x_first + head * p.x_head + column]);
}
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let head = wid.y;
  let m0 = wid.z * TM;
  if (m0 >= count()) { // uniform: state does not change within a dispatch
    return;
  }
#if MERGED
  let seen = visible_range(m0);
  let size = split_size(seen.y - seen.x);
  let used = min(MERGED, (seen.y - seen.x + size - 1u) / size);
  for (var i = t; i < VECS; i += WG) {
    xs[i] = merged((m0 * HEADS + head) * SPLIT, p.x_first / 4u + i, used, head);
  }
#else
  for (var i = t; i < TM * VECS; i += WG) {
    let m = m0 + i / VECS;
    let column = 4u * (i % VECS);
    xs[i] = vec4f(
      x_at(m, head, column), x_at(m, head, column + 1u), x_at(m, head, column + 2u), x_at(m, head, column + 3u));
  }
#endif
  workgroupBarrier();
  let row = wid.x * LANES + t / TK;
#for m in TM
  var sum${m} = 0.0;
#endfor
  if (row < ROWS) {
    for (var g = t % TK; g < W_GROUPS; g += TK) {
      let w = w_group(p.w_first + head * p.w_head + row, g);
      for (var i = 0u; i < 8u; i++) {
#for m in TM
        sum${m} += dot(w[i], xs[${m}u * VECS + 8u * g + i]);
#endfor
      }
    }
  }
#for m in TM
  sums[${m}u * WG + t] = sum${m};
#endfor
  workgroupBarrier();
  for (var i = t; i < TM * LANES; i += WG) {
    let m = m0 + i / LANES;
    let lane = i % LANES;
    if (m < count() && wid.x * LANES + lane < ROWS) {
      var sum = 0.0;
      for (var k = 0u; k < TK; k++) {
        sum += sums[i / LANES * WG + lane * TK + k];
      }
      y[m * p.y_stride + p.y_first + head * p.y_head + wid.x * LANES + lane] = Value(sum);
    }
  }
}
