// Y = X W^T for a batch of tokens in floats: X is (n, COLS), W is (rows, COLS). Grid (rows / TN, tiles of TM tokens).
//
// W is dequantised into workgroup memory, a group of 32 columns at a time. While it is multiplied, the next one is on its way.
// Each thread sums MM x MN results in f32, group after group. Where the GPU has f16, a group's products are summed in f16, four
// sums of eight terms for each result: the error is a thousandth at most.
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param TM // tokens of a tile
#param TN // rows of a tile
#param MM // tokens of a thread
#param MN // rows of a thread
#param BIAS // 1: y has a bias
#param EPILOGUE // "store": y = ...; "add": y += ...
#param SUMS32 // 1: products of f16 are summed in f32
#param F16
#param HALVES // 1: W is dequantised in f16
#include "lib/matmul_inputs.wgsl"

#if F16
alias h4 = vec4<f16>;
#else
alias h4 = vec4f;
#endif

const WM = TM / MM; // threads along the tokens
const WN = TN / MN;
const WG = WM * WN;
const PITCH = 9u; // vectors between rows in workgroup memory: eight, and one against bank conflicts
// By place in a thread, thread, and vector: the indices that browsers clamp are the same throughout a loop.
var<workgroup> xs: array<array<array<h4, PITCH>, WM>, MM>;
var<workgroup> ws: array<array<array<h4, PITCH>, WN>, MN>;

// A group of a row of W as it is in workgroup memory. Firefox takes an alias in a returned array for another type.
#if F16
fn w_unpacked(row: u32, g: u32) -> array<vec4<f16>, 8> {
#if HALVES
  return w_halves(row, g);
#else
  let w = w_group(row, g);
  return array(
    vec4<f16>(w[0]), vec4<f16>(w[1]), vec4<f16>(w[2]), vec4<f16>(w[3]),
    vec4<f16>(w[4]), vec4<f16>(w[5]), vec4<f16>(w[6]), vec4<f16>(w[7]));
#endif
}
#else
fn w_unpacked(row: u32, g: u32) -> array<vec4f, 8> {
  return w_group(row, g);
}
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let n0 = wid.x * TN;
  let tile = tile_at(wid.y);
  if (tile.count == 0u) { // uniform: the buffers are read-only
    return;
  }
  let tm = t / WN;
  let tn = t % WN;
  // Each thread loads the same columns of the same rows of every group.
#for i in TM * 8 // ((TM // MM) * (TN // MN))
  let x_at${i} = x_at(tile, (t + ${i}u * WG) / 8u);
  var x${i} = load_x(x_at${i}, 0u, t % 8u);
#endfor
#for i in (TN + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
  let w_row${i} = loaded_row(tile, n0, min(t + ${i}u * WG, TN - 1u));
  var w${i} = w_unpacked(w_row${i}, 0u);
#endfor
  // One variable per sum: an array would be in slow memory where the compiler does not unroll.
#for m in MM
#for n in MN
  var sum${m}_${n} = 0.0;
#endfor
#endfor
  for (var g = 0u; g < W_GROUPS; g++) {
#for i in TM * 8 // ((TM // MM) * (TN // MN))
    {
      let row = (t + ${i}u * WG) / 8u;
      xs[row / WM][row % WM][t % 8u] = h4(x${i});
    }
#endfor
#for i in (TN + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
    {
      let row = t + ${i}u * WG;
      if (row < TN) {
#for c in 8
        ws[row / WN][row % WN][${c}] = w${i}[${c}];
#endfor
      }
    }
#endfor
    workgroupBarrier();
    if (g + 1u < W_GROUPS) {
#for i in TM * 8 // ((TM // MM) * (TN // MN))
      x${i} = load_x(x_at${i}, g + 1u, t % 8u);
#endfor
#for i in (TN + (TM // MM) * (TN // MN) - 1) // ((TM // MM) * (TN // MN))
      w${i} = w_unpacked(w_row${i}, g + 1u);
#endfor
    }
#if F16 and not SUMS32
#for m in MM
#for n in MN
    var part${m}_${n} = h4();
#endfor
#endfor
#endif
#for c in 8
    {
#for n in MN
#if F16 and not SUMS32
      let b${n} = ws[${n}][tn][${c}];
#else
      let b${n} = vec4f(ws[${n}][tn][${c}]);
#endif
#endfor
#for m in MM
      {
#if F16 and not SUMS32
        let a = xs[${m}][tm][${c}];
#for n in MN
        part${m}_${n} = fma(a, b${n}, part${m}_${n});
#endfor
#else
        let a = vec4f(xs[${m}][tm][${c}]);
#for n in MN
        sum${m}_${n} = fma(a.x, b${n}.x, fma(a.y, b${n}.y, fma(a.z, b${n}.z, fma(a.w, b${n}.w, sum${m}_${n}))));
#endfor
#endif
      }
#endfor
    }
#endfor
#if F16 and not SUMS32
#for m in MM
#for n in MN
    {
      let part = vec4f(part${m}_${n});
      sum${m}_${n} += part.x + part.y + part.z + part.w;
    }
#endfor
#endfor
#endif
    workgroupBarrier();
  }
#for m in MM
#for n in MN
  store_result(tile, ${m}u * WM + tm, n0 + ${n}u * WN + tn, sum${m}_${n});
#endfor
#endfor
}
