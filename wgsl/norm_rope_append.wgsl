// Norm and rotation (RoPE) of queries and keys; appends keys and values to the cache. x stacks the q, k and v rows of each
// token; y gets the queries. Grid (heads of q, k and v, tokens): a workgroup per head, a thread per quad of rows.
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#param WG // a power of two, at least HEAD_DIM / 4
#param SG

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  x_stride: u32,
  y_stride: u32,
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#include "lib/head_norm.wgsl" with SLICE=WG
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/rope.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch; steps with drafts have rows without a token
    return;
  }
  let row = stored_row(m); // early: the loads overlap with the sums
  let head = wid.x * HEAD_DIM;
  let x0 = m * p.x_stride;
  let i = head + 4u * min(t, QUADS - 1u);
  let a = rope_row(i);
  let b = rope_row(i + 2u);
  let a0 = head_row(a, head, x0);
  let a1 = head_row(a + 1u, head, x0);
  let b0 = head_row(b, head, x0);
  let b1 = head_row(b + 1u, head, x0);
  let rotation = rope_rotation(i / 4u, m);
  let moments = head_moments(head, x0, t);
  if (t >= QUADS) {
    return;
  }
#if AFTER
  rotated_by = vec4f(a0.weight, a1.weight, b0.weight, b1.weight);
#endif
  let first = vec2f(normed(a0, head, moments), normed(a1, head, moments));
  let second = vec2f(normed(b0, head, moments), normed(b1, head, moments));
  rope_store(i / 4u, vec4f(first, second), rotation, row, m * p.y_stride);
}
