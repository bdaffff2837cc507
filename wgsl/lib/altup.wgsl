// The factors that AltUp's router chooses for a token. A workgroup has one token; thread t has vec4 t, t + WG, ... of each
// stream. The kernel has `p.scale` (of the router's logits), `p.eps`, and FACTORS.
#param STREAMS
#param COLS // columns of a stream
#param WG
#param VECS_PER_THREAD // in each stream
#param ROUTED // 1: the workgroup multiplies with the router's matrix W, (STREAMS, COLS); 0: `router` has the logits
#param SG
const VECS = (COLS + 31u) / 32u * 8u; // vec4 of a stream
#if ROUTED
#param QUANT // fragment of wgsl/quants that reads W
#param LANES // threads that share a row of W
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#include "lib/strided.wgsl"
#include "lib/reduce_slices.wgsl" with SLICE=LANES slice_sum=row_sum reduce_memory=row_memory
// The normalised first stream but for its scale. A place more after each group keeps groups in different banks.
var<workgroup> routed_x: array<vec4f, 9u * W_GROUPS>;
#else
@bind var<storage, read> router: array<f32>; // (n, STREAMS padded to 32)
#endif
@bind var<storage, read> factors: array<f32>; // (FACTORS, STREAMS): of each logit of the router
var<workgroup> chosen: array<f32, STREAMS>; // tanh of the logits
var<workgroup> factor: array<f32, FACTORS>;

// Zeros in place of vec4 i's padding, whose contents are undefined.
fn only_columns(i: u32, v: vec4f) -> vec4f {
  return select(vec4f(0), v, 4u * i + vec4u(0, 1, 2, 3) < vec4u(COLS));
}

fn hyperbolic_tangent(x: f32) -> f32 {
  return 1.0 - 2.0 / (1.0 + exp(2.0 * x)); // the built-in tanh may overflow
}
#if ROUTED

// Stores vec4 i of the first stream times the norm's weights.
fn route_x(i: u32, v: vec4f) {
  routed_x[i + i / 8u] = v;
}
#endif

// Sets `factor` for token m. `squares`: this thread's sum of squares of the first stream, for its norm.
fn choose_factors(m: u32, squares: f32, t: u32) {
#if ROUTED
  let scale = p.scale * inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
  let row = min(t / LANES, STREAMS - 1u);
  var sum = 0.0;
  for (var g = t % LANES; g < W_GROUPS; g += LANES) {
    let w = w_part(row, g);
    var products = vec4f(0);
    for (var i = 0u; i < 8u; i++) {
      let at = part_at(g, i);
      products = fma(w[i], routed_x[at + at / 8u], products);
    }
    sum += products.x + products.y + products.z + products.w;
  }
  sum = row_sum(sum, t);
  if (t % LANES == 0u && t / LANES < STREAMS) {
    chosen[t / LANES] = hyperbolic_tangent(scale * sum);
  }
#else
  if (t < STREAMS) {
    chosen[t] = hyperbolic_tangent(p.scale * router[m * ((STREAMS + 31u) / 32u * 32u) + t]);
  }
#endif
  workgroupBarrier();
  for (var i = t; i < FACTORS; i += WG) {
    var sum = 0.0;
    for (var k = 0u; k < STREAMS; k++) {
      sum += factors[i * STREAMS + k] * chosen[k];
    }
    factor[i] = sum;
  }
  workgroupBarrier();
}
