// Pools each segment of a packed batch into its row of y: the mean of its rows of x (KIND "mean"), the first ("cls") or
// the last ("last"). A segment may come in several batches. Grid (VECS / THREADS, tokens): a segment's last token works.
// KIND "spread": the mean goes to the row of the segment's last token, zeros to the others; segments come in one batch.
#param VECS // vec4 of a row
#param KIND
#param THREADS

#include "lib/state.wgsl"
#include "lib/segments.wgsl"
@bind var<storage, read> state: States;
@bind var<storage, read> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> y: array<vec4f>; // (rows, VECS); on entry, the result of the batches before this one

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let c = id.x;
  let m = id.y;
  let n = state.tokens[0].n;
#if KIND == "spread"
  if (c < VECS && m < n) {
    y[m * VECS + c] = vec4f(0);
  }
#endif
  if (c >= VECS || m >= n || (m + 1u < n && own_begin(m + 1u) == own_begin(m))) {
    return;
  }
#if KIND == "spread"
  let at = m * VECS + c;
#else
  let at = segment_row(m) * VECS + c;
#endif
  let count = batch_position(m) + 1u - own_begin(m); // tokens of the segment up to this one
  let first = m + 1u - min(count, m + 1u); // of the segment's tokens in this batch
#if KIND in ("mean", "spread")
  var sum = vec4f(0);
  for (var i = first; i <= m; i++) {
    sum += x[i * VECS + c];
  }
#if KIND == "mean"
  let before = count - (m + 1u - first);
  if (before > 0u) {
    sum += y[at] * f32(before);
  }
  y[at] = sum / f32(count);
#else
  y[at] = sum / f32(m + 1u - first);
#endif
#else
#if KIND == "cls"
  if (count <= m + 1u) {
    y[at] = x[first * VECS + c];
  }
#else
  y[at] = x[m * VECS + c];
#endif
#endif
}
