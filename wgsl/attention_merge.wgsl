// y = attention, joined from each split's sums of attention.wgsl or attention_matrix.wgsl. The splits' weights have different
// references (the logit whose weight is 1); all are scaled to the largest one. Grid (columns of y / THREADS, tokens). A thread
// joins one dimension of a head.
#param TQ // tokens of a tile in the kernel that made the sums
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax
#param Y16 // 1: y is f16
#param THREADS
#param F16
struct Params {
  heads: u32, // query heads
  y_first: u32, // column of y of the first head
  y_stride: u32,
}
#include "lib/state.wgsl"
#include "lib/visible.wgsl"
#include "lib/tile_split.wgsl"
#if Y16
alias Output = f16;
#else
alias Output = f32;
#endif
@bind var<uniform> p: Params;
@bind var<storage, read> state: States;
@bind var<storage, read> sums: array<f32>; // see sums_at()
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (heads)
#endif
@bind var<storage, read_write> y: array<Output>; // (n, y_stride)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let n = state.tokens[0].n;
  let head = id.x / VALUE_DIM;
  let m = id.y;
  if (head >= p.heads || m >= n) {
    return;
  }
  let m0 = m / TQ * TQ;
  let seen = visible_to(m0, min(m0 + TQ, n) - 1u);
  let splits = splits_of(seen);
  let used = (seen.y - splits.x + splits.y - 1u) / splits.y;
#if SINKS
  var top = sinks[head];
#else
  var top = -1e30;
#endif
  for (var i = 0u; i < used; i++) {
    top = max(top, sums[sums_at(i, m, n, head, p.heads) + VALUE_DIM]);
  }
#if SINKS
  var total = exp(sinks[head] - top);
#else
  var total = 0.0;
#endif
  var sum = 0.0;
  for (var i = 0u; i < used; i++) {
    let at = sums_at(i, m, n, head, p.heads);
    let weight = exp(sums[at + VALUE_DIM] - top);
    sum += weight * sums[at + id.x % VALUE_DIM];
    total += weight * sums[at + VALUE_DIM + 1u];
  }
  y[m * p.y_stride + p.y_first + id.x] = Output(sum / total);
}
