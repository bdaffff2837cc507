// Y = X W^T for a batch of tokens, as matmul.wgsl, with subgroup matrices (chromium_experimental_subgroup_matrix): f16
// inputs, f32 sums. Grid (rows / TN, tokens / TM). A subgroup sums (TM / SM) x (TN / SN) of a tile, in squares of SIDE.
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param TM // tokens of a tile
#param TN // rows of a tile
#param SM // subgroups along the tokens
#param SN // subgroups along the rows
#param DEPTH // columns at a time: 32 or 64
#param BIAS // 1: y has a bias
#param EPILOGUE // "store": y = ...; "add": y += ...
#param F16
#include "lib/subgroup_matrix.wgsl"
#include "lib/matmul_inputs.wgsl"

const WG = SM * SN * LANES;
const VECS = DEPTH / 4u;
const GROUPS = DEPTH / 32u;
const PITCH = DEPTH + 8u; // row pitch in workgroup memory, in f16: a multiple of 16 bytes, padded against bank conflicts

var<workgroup> xs: array<f16, TM * PITCH>;
var<workgroup> ws: array<f16, TN * PITCH>;
var<workgroup> out: array<f32, SM * SN * SIDE * SIDE>;

fn stage_x(i: u32, m0: u32, g0: u32) {
  let c = i % VECS;
  let v = vec4<f16>(load_x(m0 + i / VECS, g0 + c / 8u, c % 8u));
  let at = i / VECS * PITCH + c * 4u;
  xs[at] = v.x;
  xs[at + 1u] = v.y;
  xs[at + 2u] = v.z;
  xs[at + 3u] = v.w;
}

fn stage_w(i: u32, n0: u32, g0: u32) {
  let w = w_group(min(n0 + i / GROUPS, p.rows - 1u), min(g0 + i % GROUPS, W_GROUPS - 1u));
  let at = i / GROUPS * PITCH + i % GROUPS * 32u;
#for c in 8
  {
    let v = vec4<f16>(w[${c}]);
    ws[at + 4u * ${c}u] = v.x;
    ws[at + 4u * ${c}u + 1u] = v.y;
    ws[at + 4u * ${c}u + 2u] = v.z;
    ws[at + 4u * ${c}u + 3u] = v.w;
  }
#endfor
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m0 = wid.y * TM;
  let n0 = wid.x * TN;
  if (m0 >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
  let sub = t / LANES;
  let sm = sub / SN * (TM / SM);
  let sn = sub % SN * (TN / SN);
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
  var acc${i}_${j} = Result();
#endfor
#endfor
  for (var g0 = 0u; g0 < W_GROUPS; g0 += GROUPS) {
#for i in TM * DEPTH // 4 // (SM * SN * LANES)
    stage_x(t + ${i}u * WG, m0, g0);
#endfor
#for i in (TN * DEPTH // 32 + SM * SN * LANES - 1) // (SM * SN * LANES)
    if (t + ${i}u * WG < TN * GROUPS) {
      stage_w(t + ${i}u * WG, n0, g0);
    }
#endfor
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k += SIDE) {
#for i in TM // SM // SIDE
      let a${i} = subgroupMatrixLoad<Left>(&xs, (sm + ${i}u * SIDE) * PITCH + k, false, PITCH);
#endfor
#for j in TN // SN // SIDE
      {
        let b = subgroupMatrixLoad<Right>(&ws, (sn + ${j}u * SIDE) * PITCH + k, true, PITCH);
#for i in TM // SM // SIDE
        acc${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b, acc${i}_${j});
#endfor
      }
#endfor
    }
    workgroupBarrier();
  }
  let lane = t % LANES;
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
  subgroupMatrixStore(&out, sub * SIDE * SIDE, acc${i}_${j}, false, SIDE);
  workgroupBarrier();
  for (var e = lane; e < SIDE * SIDE; e += LANES) {
    let m = m0 + sm + ${i}u * SIDE + e / SIDE;
    store_y(m, n0 + sn + ${j}u * SIDE + e % SIDE, out[sub * SIDE * SIDE + e]);
  }
  workgroupBarrier();
#endfor
#endfor
}
