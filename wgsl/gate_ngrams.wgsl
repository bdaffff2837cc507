// Each of the token's residual streams += gate * value[m], and y[m, s] = the RMS norm of that addition. The gate is the
// sigmoid of the signed root of a score: the product of the stream's norm with the key's. Grid (tokens, streams), a
// workgroup for each.
#param COLS // columns of a stream
#param WG
#param SG

const LEAST = 1e-6; // of a score's size
struct Params {
  eps: f32,
  key_stride: u32,
  value_stride: u32,
  streams_stride: u32,
  y_stride: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> norms: array<f32>; // (3, streams, COLS): of keys, of streams, of additions
@bind var<storage, read> key: array<f32>; // (n, streams, COLS)
@bind var<storage, read> value: array<f32>; // (n, COLS)
@bind var<storage, read_write> streams: array<f32>; // (n, streams, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, streams, COLS)
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3u,
  @builtin(num_workgroups) wgs: vec3u,
  @builtin(local_invocation_index) t: u32,
) {
  let m = wid.x;
  let first = wid.y * COLS;
  let wide = wgs.y * COLS;
  var squares = vec3f(0); // of key, stream and value
  var product = 0.0;
  for (var i = t; i < COLS; i += WG) {
    let k = key[m * p.key_stride + first + i];
    let q = streams[m * p.streams_stride + first + i];
    let v = value[m * p.value_stride + i];
    squares += vec3f(k * k, q * q, v * v);
    product += k * norms[first + i] * q * norms[wide + first + i];
  }
  let keys = workgroup_sum(squares.x, t);
  let queries = workgroup_sum(squares.y, t);
  let values = workgroup_sum(squares.z, t);
  product = workgroup_sum(product, t);
  let score =
    product * inverseSqrt(keys / f32(COLS) + p.eps) * inverseSqrt(queries / f32(COLS) + p.eps) / sqrt(f32(COLS));
  let gate = 1.0 / (1.0 + exp(-sign(score) * sqrt(max(abs(score), LEAST))));
  let scale = gate * inverseSqrt(gate * gate * values / f32(COLS) + p.eps);
  for (var i = t; i < COLS; i += WG) {
    let v = value[m * p.value_stride + i];
    streams[m * p.streams_stride + first + i] += gate * v;
    y[m * p.y_stride + first + i] = v * scale * norms[2u * wide + first + i];
  }
}
