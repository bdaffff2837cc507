// The input of a layer that predicts the token after the next one (plan/mtp.py), for the products with its first matrix:
// y[m] = (e[m] / rms * norm, h / rms * norm'), where e embeds token m and h is the hidden state of the token before it,
// zeros at a sequence's beginning; or (e[m], h) as they are (PLAIN). Grid (tokens), a workgroup per row. HIDDEN says where h is:
//   "batch"  in `hidden`, which has the batch's hidden states; before a run's first token, in `ring`, which gets the
//            run's last ones
//   "ring"   in `ring`: each row is of another sequence
//   "own"    in `hidden`: what the layer has computed of the token before; each row is of another sequence
// RESIDUAL: x[m] gets what the layer adds to: h as it is ("raw"), or as y has it ("normed"). Zeros follow. With "own", x is
// `hidden`.
#param COLS // of e, and of a hidden state
#param HIDDEN
#param RING // positions of a sequence in `ring`
#param PLAIN // 1: neither is normalised
#param RESIDUAL // 0: there is no x
#param WG
#param SG
#param Y16 // 1: y, (n, y_stride), is f16; its 2 * COLS columns are followed by zeros

struct Params {
  x_stride: u32, // of e, `hidden` and x
  y_stride: u32,
#if not PLAIN
  eps: f32,
#endif
}
#include "lib/runs.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> e: array<f32>; // (n, x_stride)
#if RESIDUAL
@bind var<storage, read_write> x: array<f32>; // (n, x_stride)
#endif
#if HIDDEN != "ring" and not (RESIDUAL and HIDDEN == "own")
@bind var<storage, read> hidden: array<f32>; // (n, x_stride)
#endif
#if not PLAIN
@bind var<storage, read> norm: array<f32>; // (2, COLS)
#endif
#if HIDDEN == "batch"
@bind var<storage, read_write> ring: array<f32>; // (sequences, RING, COLS)
#endif
#if HIDDEN == "ring"
@bind var<storage, read> ring: array<f32>;
#endif
#include "lib/result.wgsl"
#if not PLAIN
#include "lib/reduce.wgsl"
#endif
#if HIDDEN != "own"

fn ring_at(pos: u32, seq: u32) -> u32 {
  return (seq * RING + pos % RING) * COLS;
}
#endif

// Column i of the hidden state before token m.
fn before(m: u32, i: u32) -> f32 {
  if (offset_of(m) == 0u) {
    return 0.0;
  }
#if HIDDEN == "own"
#if RESIDUAL
  return x[m * p.x_stride + i];
#else
  return hidden[m * p.x_stride + i];
#endif
#else
#if HIDDEN == "batch"
  if (!begins_run(m)) {
    return hidden[(m - 1u) * p.x_stride + i];
  }
#endif
  return ring[ring_at(pos_of(m) - 1u, seq_of(m)) + i];
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count()) {
    return;
  }
  let to = m * p.y_stride;
#if PLAIN
  for (var i = t; i < COLS; i += WG) {
    y[to + i] = Value(e[m * p.x_stride + i]);
    y[to + COLS + i] = Value(before(m, i));
  }
#else
  var of_e = 0.0;
  var of_h = 0.0;
  for (var i = t; i < COLS; i += WG) {
    let a = e[m * p.x_stride + i];
    let b = before(m, i);
    of_e += a * a;
    of_h += b * b;
  }
  let scale_e = inverseSqrt(workgroup_sum(of_e, t) / f32(COLS) + p.eps);
  let scale_h = inverseSqrt(workgroup_sum(of_h, t) / f32(COLS) + p.eps);
  for (var i = t; i < COLS; i += WG) {
    let h = before(m, i);
    let normed = h * scale_h * norm[COLS + i];
    y[to + i] = Value(e[m * p.x_stride + i] * scale_e * norm[i]);
    y[to + COLS + i] = Value(normed);
#if RESIDUAL == "raw"
    x[m * p.x_stride + i] = h;
#endif
#if RESIDUAL == "normed"
    x[m * p.x_stride + i] = normed;
#endif
  }
#endif
  for (var i = 2u * COLS + t; i < p.y_stride; i += WG) {
    y[to + i] = Value(0);
  }
#if RESIDUAL
  for (var i = COLS + t; i < p.x_stride; i += WG) {
    x[m * p.x_stride + i] = 0.0;
  }
#endif
#if HIDDEN == "batch"
  if (begins_run(m)) { // each thread has read the columns of `ring` that it writes, and no other row reads them
    let end = run_end(m);
    for (var last = max(m + RING, end) - RING; last < end; last++) {
      for (var i = t; i < COLS; i += WG) {
        ring[ring_at(pos_of(last), seq_of(last)) + i] = hidden[last * p.x_stride + i];
      }
    }
  }
#endif
}
