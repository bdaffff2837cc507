// Norm and rotation (RoPE) of queries and keys; appends keys and values to the cache. x stacks the q, k and v rows of each
// token; y gets the queries. Grid (heads of q, k and v / HEADS_EACH, tokens): a workgroup has HEADS_EACH heads, and a thread
// a quad of rows at a time.
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#param HEADS_EACH // heads of a workgroup: all of queries, keys or values, or some of one of them
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

// A quad of rows before its norm.
struct Quad {
  head: u32, // the head's first row
  i: u32, // the quad's first row
  a0: HeadRow,
  a1: HeadRow,
  b0: HeadRow,
  b1: HeadRow,
  rotation: vec4f,
}

// Quad `at` of the workgroup's heads, whose rows begin with `first`.
fn load_quad(at: u32, first: u32, m: u32) -> Quad {
  let x0 = m * p.x_stride;
  let head = first + at / QUADS * HEAD_DIM;
  let i = head + 4u * (at % QUADS);
  let a = rope_row(i);
  let b = rope_row(i + 2u);
  return Quad(
    head, i, head_row(a, head, x0), head_row(a + 1u, head, x0), head_row(b, head, x0), head_row(b + 1u, head, x0),
    rope_rotation(i / 4u, m));
}

fn store_quad(quad: Quad, moments: Moments, row: u32, m: u32) {
#if AFTER
  rotated_by = vec4f(quad.a0.weight, quad.a1.weight, quad.b0.weight, quad.b1.weight);
#endif
  let first = vec2f(normed(quad.a0, quad.head, moments), normed(quad.a1, quad.head, moments));
  let second = vec2f(normed(quad.b0, quad.head, moments), normed(quad.b1, quad.head, moments));
  rope_store(quad.i / 4u, vec4f(first, second), quad.rotation, row, m * p.y_stride);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch; steps with drafts have rows without a token
    return;
  }
  let row = stored_row(m); // early: the loads overlap with the sums
  let first = wid.x * HEADS_EACH * HEAD_DIM;
  let quad = load_quad(min(t, HEADS_EACH * QUADS - 1u), first, m);
  let moments = head_moments(first, m * p.x_stride, t);
  if (t < HEADS_EACH * QUADS) {
    store_quad(quad, moments, row, m);
  }
#if HEADS_EACH > 1
  for (var at = t + WG; at < HEADS_EACH * QUADS; at += WG) {
    store_quad(load_quad(at, first, m), moments, row, m);
  }
#endif
}
