// Y = X W^T for a batch of tokens: X is (n, COLS), W is (rows, COLS). Grid (rows / TN, tiles of TM tokens).
//
// W is dequantised into workgroup memory, a group of 32 columns at a time. Each thread sums MM x MN results in f32.
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

#if SUMS32
alias s4 = vec4f;
#else
alias s4 = h4;
#endif

const WM = TM / MM; // threads along the tokens
const WN = TN / MN;
const WG = WM * WN;
const PAD = 9u; // row pitch in workgroup memory: 8 vectors, and one against bank conflicts
var<workgroup> xs: array<h4, TM * PAD>;
var<workgroup> ws: array<h4, TN * PAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let n0 = wid.x * TN;
  let tile = tile_at(wid.y);
  if (tile.count == 0u) { // uniform: the buffers are read-only
    return;
  }
  let tm = t / WN;
  let tn = t % WN;
#for i in TM * 8 // ((TM // MM) * (TN // MN))
  let x${i} = x_at(tile, (t + ${i}u * WG) / 8u);
#endfor
  let w0 = loaded_row(tile, n0, t);
  var acc: array<array<f32, MN>, MM>;
  for (var g = 0u; g < W_GROUPS; g++) {
#for i in TM * 8 // ((TM // MM) * (TN // MN))
    xs[(t + ${i}u * WG) / 8u * PAD + t % 8u] = h4(load_x(x${i}, g, t % 8u));
#endfor
    if (t < TN) {
#if HALVES
      let w = w_halves(w0, g);
#else
      let w = w_group(w0, g);
#endif
#for c in 8
      ws[t * PAD + ${c}u] = h4(w[${c}]);
#endfor
    }
    workgroupBarrier();
    var part = array<array<s4, MN>, MM>(); // sums of this group alone: few terms, so f16 errs by a thousandth at most
    for (var c = 0u; c < 8u; c++) {
      var b: array<h4, MN>;
      for (var j = 0u; j < MN; j++) {
        b[j] = ws[(j * WN + tn) * PAD + c];
      }
      for (var i = 0u; i < MM; i++) {
        let a = xs[(i * WM + tm) * PAD + c];
        for (var j = 0u; j < MN; j++) {
          part[i][j] = fma(s4(a), s4(b[j]), part[i][j]);
        }
      }
    }
    for (var i = 0u; i < MM; i++) {
      for (var j = 0u; j < MN; j++) {
        let sum = vec4f(part[i][j]);
        acc[i][j] += sum.x + sum.y + sum.z + sum.w;
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < MM; i++) {
    for (var j = 0u; j < MN; j++) {
      store_result(tile, i * WM + tm, n0 + j * WN + tn, acc[i][j]);
    }
  }
}
