// The token's residual streams become sums of all of them, each also with its weight * x[m]. The weights of streams in each
// other are a softmax over the streams they go to, then normalised over those that they come from and those that they go
// to in turn (Sinkhorn and Knopp 1967). Grid (tokens), a workgroup for each.
#param STREAMS
#param COLS // columns of a stream
#param ROUNDS // of that normalisation
#param WG

struct Params {
  eps: f32, // added to the softmax and to sums
  products_stride: u32,
  streams_stride: u32,
  stride: u32, // of x
}
@bind var<uniform> p: Params;
@bind var<storage, read> products: array<f32>; // (n, (2 + STREAMS) * STREAMS): to read, to add, from each to every stream
@bind var<storage, read> terms: array<f32>; // a scale for each of the three; a base for each product
@bind var<storage, read> x: array<f32>; // (n, COLS)
@bind var<storage, read_write> streams: array<f32>; // (n, STREAMS, COLS)

fn term(m: u32, at: u32, part: u32) -> f32 {
  return products[m * p.products_stride + at] * terms[part] + terms[3u + at];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  var weights: array<f32, STREAMS * STREAMS>; // of stream s in stream d: at s * STREAMS + d
  var added: array<f32, STREAMS>;
  for (var s = 0u; s < STREAMS; s++) {
    added[s] = 2.0 / (1.0 + exp(-term(m, STREAMS + s, 1u)));
    var top = -3.4e38;
    for (var d = 0u; d < STREAMS; d++) {
      weights[s * STREAMS + d] = term(m, (2u + s) * STREAMS + d, 2u);
      top = max(top, weights[s * STREAMS + d]);
    }
    var sum = 0.0;
    for (var d = 0u; d < STREAMS; d++) {
      weights[s * STREAMS + d] = exp(weights[s * STREAMS + d] - top);
      sum += weights[s * STREAMS + d];
    }
    for (var d = 0u; d < STREAMS; d++) {
      weights[s * STREAMS + d] = weights[s * STREAMS + d] / sum + p.eps;
    }
  }
  for (var round = 0u; round < ROUNDS; round++) {
    for (var s = 0u; s < STREAMS && round > 0u; s++) {
      var sum = p.eps;
      for (var d = 0u; d < STREAMS; d++) {
        sum += weights[s * STREAMS + d];
      }
      for (var d = 0u; d < STREAMS; d++) {
        weights[s * STREAMS + d] /= sum;
      }
    }
    for (var d = 0u; d < STREAMS; d++) {
      var sum = p.eps;
      for (var s = 0u; s < STREAMS; s++) {
        sum += weights[s * STREAMS + d];
      }
      for (var s = 0u; s < STREAMS; s++) {
        weights[s * STREAMS + d] /= sum;
      }
    }
  }
  for (var i = t; i < COLS; i += WG) {
    let v = x[m * p.stride + i];
    var old: array<f32, STREAMS>;
    for (var s = 0u; s < STREAMS; s++) {
      old[s] = streams[m * p.streams_stride + s * COLS + i];
    }
    for (var d = 0u; d < STREAMS; d++) {
      var sum = added[d] * v;
      for (var s = 0u; s < STREAMS; s++) {
        sum += weights[s * STREAMS + d] * old[s];
      }
      streams[m * p.streams_stride + d * COLS + i] = sum;
    }
  }
}
