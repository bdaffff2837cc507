// Y = X W^T for a batch of tokens in integers: X is (n, COLS), rounded to signed bytes by quantize_rows.wgsl, W is (rows, COLS).
// Grid (rows / TN, tiles of TM tokens).
//
// For GPUs without subgroup matrices: dot4I8Packed multiplies and adds four pairs of bytes in one operation, which is at least
// twice as fast as f16 where the GPU has it. As for one token, each group of 32 columns has a scale in X and in W.
// W is unpacked into workgroup memory, STEP groups at a time. While they are multiplied, the next ones are on their way. Each
// thread sums MM x MN results in f32, group after group: a token has the same result with every tile.
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param TM // tokens of a tile
#param TN // rows of a tile
#param MM // tokens of a thread
#param MN // rows of a thread
#param STEP // groups of a step
#param TWO_SCALES // 1: each half of a group of W has a scale and a minimum of its own
#param BIAS // 1: y has a bias
#param EPILOGUE // "store": y = ...; "add": y += ...
#param INT8 // 1: lib/matmul_inputs.wgsl binds X in bytes
#include "lib/matmul_inputs.wgsl"

const VECS = 2u * STEP; // vectors of 16 bytes of a row in a step
const PITCH = VECS + 1u; // one more, against bank conflicts
const WM = TM / MM; // threads along the tokens
const WN = TN / MN;
const WG = WM * WN;
var<workgroup> xs: array<vec4u, TM * PITCH>;
var<workgroup> ws: array<vec4u, TN * PITCH>;
var<workgroup> x_scales: array<vec2f, TM * STEP>; // scale; sum of the group, scaled
#if TWO_SCALES
var<workgroup> w_scales: array<vec4f, TN * STEP>; // scale and minimum of the first half, of the second half
#else
var<workgroup> w_scales: array<vec2f, TN * STEP>;
#endif

// Vector i of a step of the row of bytes that begins with group `first`; the last group's where there is none.
fn x_vector(first: u32, g0: u32, i: u32) -> vec4u {
  return xq[2u * (first + min(g0 + i / 2u, W_GROUPS - 1u)) + i % 2u];
}

// Scale and sum of a group; zeros where there is none, so that what it is multiplied with does not count.
fn x_scale_of(first: u32, g: u32) -> vec2f {
  return select(vec2f(), xq_scale[first + min(g, W_GROUPS - 1u)], g < W_GROUPS);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let n0 = wid.x * TN;
  let tile = tile_at(wid.y);
  if (tile.count == 0u) { // uniform: the buffers are read-only
    return;
  }
  let tm = t / WN;
  let tn = t % WN;
  // Each thread loads the same columns of the same rows in every step: these are x's first groups, and W's rows.
#for i in (TM * 2 * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
  let x_first${i} = x_row(tile, min((t + ${i}u * WG) / VECS, TM - 1u)) * W_GROUPS;
  var x${i} = x_vector(x_first${i}, 0u, t % VECS);
#endfor
#for i in (TM * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
  let s_first${i} = x_row(tile, min((t + ${i}u * WG) / STEP, TM - 1u)) * W_GROUPS;
  var s${i} = x_scale_of(s_first${i}, t % STEP);
#endfor
#for i in (TN * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
  let w_row${i} = loaded_row(tile, n0, min((t + ${i}u * WG) / STEP, TN - 1u));
  var w${i} = w_load(w_row${i}, min(t % STEP, W_GROUPS - 1u));
#endfor
  // One variable per sum: an array would be in slow memory where the compiler does not unroll.
#for m in MM
#for n in MN
  var sum${m}_${n} = 0.0;
#endfor
#endfor
  for (var g0 = 0u; g0 < W_GROUPS; g0 += STEP) {
#for i in (TM * 2 * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
    if (t + ${i}u * WG < TM * VECS) {
      xs[(t + ${i}u * WG) / VECS * PITCH + t % VECS] = x${i};
    }
#endfor
#for i in (TM * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
    if (t + ${i}u * WG < TM * STEP) {
      x_scales[t + ${i}u * WG] = s${i};
    }
#endfor
#for i in (TN * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
    if (t + ${i}u * WG < TN * STEP) {
      let at = (t + ${i}u * WG) / STEP * PITCH + t % STEP * 2u;
      ws[at] = w${i}.a;
      ws[at + 1u] = w${i}.b;
#if TWO_SCALES
      w_scales[t + ${i}u * WG] = vec4f(w${i}.s, w${i}.t);
#else
      w_scales[t + ${i}u * WG] = w${i}.s;
#endif
    }
#endfor
    workgroupBarrier();
    let next = g0 + STEP;
    if (next < W_GROUPS) {
#for i in (TM * 2 * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
      x${i} = x_vector(x_first${i}, next, t % VECS);
#endfor
#for i in (TM * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
      s${i} = x_scale_of(s_first${i}, next + t % STEP);
#endfor
#for i in (TN * STEP + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
      w${i} = w_load(w_row${i}, min(next + t % STEP, W_GROUPS - 1u));
#endfor
    }
#for g in STEP
    {
#for n in MN
      let a${n} = ws[(${n}u * WN + tn) * PITCH + 2u * ${g}u];
      let b${n} = ws[(${n}u * WN + tn) * PITCH + 2u * ${g}u + 1u];
      let scale${n} = w_scales[(${n}u * WN + tn) * STEP + ${g}u];
#endfor
#for m in MM
      {
        let x_a = xs[(${m}u * WM + tm) * PITCH + 2u * ${g}u];
        let x_b = xs[(${m}u * WM + tm) * PITCH + 2u * ${g}u + 1u];
        let s = x_scales[(${m}u * WM + tm) * STEP + ${g}u];
#if TWO_SCALES
        let ones = bytes_dot(x_a, vec4u(0x01010101));
        let first = s.x * ones; // sum of the first half
        let second = fma(-s.x, ones, s.y);
#endif
        // fma(): else compilers might round differently in two tiles
#for n in MN
#if TWO_SCALES
        sum${m}_${n} -= fma(scale${n}.y, first, scale${n}.w * second);
        sum${m}_${n} = fma(s.x, fma(scale${n}.x, bytes_dot(a${n}, x_a), scale${n}.z * bytes_dot(b${n}, x_b)), sum${m}_${n});
#else
        sum${m}_${n} = fma(-scale${n}.y, s.y, sum${m}_${n});
        sum${m}_${n} = fma(s.x * scale${n}.x, f32(int_dot(a${n}, x_a) + int_dot(b${n}, x_b)), sum${m}_${n});
#endif
#endfor
      }
#endfor
    }
#endfor
    workgroupBarrier();
  }
#for m in MM
#for n in MN
  store_result(tile, ${m}u * WM + tm, n0 + ${n}u * WN + tn, sum${m}_${n});
#endfor
#endfor
}
