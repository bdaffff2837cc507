// The residual stream after attention, beside which a layer has a low-rank residual (Laurel, Menghani et al. 2024):
// x = (x + the RMS norms of x, of attended and of low) / sqrt(2), row by row.
// Grid (tokens), a workgroup for each.
#param COLS // columns of x
#param WG
#param VECS_PER_THREAD
#param SG

struct Params {
  eps: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> norms: array<vec4f>; // of x, attended and low; COLS each
@bind var<storage, read> attended: array<vec4f>; // (n, VECS)
@bind var<storage, read> low: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)
#include "lib/reduce.wgsl"

const VECS = (COLS + 31u) / 32u * 8u;

fn norm_scale(squares: f32, t: u32) -> f32 {
  return inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.x * VECS;
  var squares = vec3f(0); // of x, attended and low
  // One variable per vector: all loads are in flight together. The padding's contents are undefined, and count as zeros.
#for i in VECS_PER_THREAD
  let at${i} = t + ${i}u * WG;
  var x${i} = vec4f(0);
  var attended${i} = vec4f(0);
  var low${i} = vec4f(0);
  if (at${i} < VECS) {
    let inside = 4u * at${i} + vec4u(0, 1, 2, 3) < vec4u(COLS);
    x${i} = select(vec4f(0), x[first + at${i}], inside);
    attended${i} = select(vec4f(0), attended[first + at${i}], inside);
    low${i} = select(vec4f(0), low[first + at${i}], inside);
  }
  squares += vec3f(dot(x${i}, x${i}), dot(attended${i}, attended${i}), dot(low${i}, low${i}));
#endfor
  let scales = vec3f(norm_scale(squares.x, t), norm_scale(squares.y, t), norm_scale(squares.z, t));
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
    var sum = fma(x${i} * norms[at${i}], vec4f(scales.x), x${i});
    sum = fma(attended${i} * norms[COLS / 4u + at${i}], vec4f(scales.y), sum);
    sum = fma(low${i} * norms[2u * (COLS / 4u) + at${i}], vec4f(scales.z), sum);
    x[first + at${i}] = sum * 0.7071067811865476;
  }
#endfor
}
