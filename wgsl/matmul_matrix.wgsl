// Y = X W^T for a batch of tokens, as matmul.wgsl, with subgroup matrices (chromium_experimental_subgroup_matrix): f16
// inputs, f32 sums. Grid (rows / TN, tiles of TM tokens). A subgroup sums (TM / SM) x (TN / SN) of a tile, in squares of
// SIDE. But for "accumulate", every tile adds the same terms in the same order, the old y last: a token's result does not
// depend on its tile, and a text does not depend on the parts in which its prompt was read.
//
// Indices into workgroup memory are computed in main from constants and the thread's index: the compiler then knows
// their range, so it checks no bounds and can join neighbouring stores.
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param TM // tokens of a tile
#param TN // rows of a tile
#param SM // subgroups along the tokens
#param SN // subgroups along the rows
#param DEPTH // columns at a time: 32, 64 or 128
#param AHEAD // 1: the next columns are loaded into registers before the current ones are multiplied; 2: and have workgroup
// memory of their own, so that threads store them while others still multiply
#param PINNED // 1: x, W and what may be in one buffer with W are bound as read_write. Compilers move loads of read-only
// buffers to where their values are used, which is after the products; these stay before them
#if PINNED
#read_write x w_* bias scales
#endif
#param BIAS // 1: y has a bias, added to each result; 2: added as a product
#param EPILOGUE // "store": y = ...; "add": y += ...; "accumulate": y += ..., and in whole tiles y is the first term, which is
// faster; others store f16: "activate": y = ACTIVATION(...); "gated": y = ACTIVATION(gate) * up; "split": queries into y,
// keys and values into an encoder's cache
#param F16
#param HALVES // 1: W is dequantised in f16
#include "lib/subgroup_matrix.wgsl"
#include "lib/matmul_inputs.wgsl"
#if EPILOGUE in ("activate", "gated")
#param ACTIVATION // see activation.wgsl
#include "lib/activation.wgsl"
#endif

const WG = SM * SN * LANES;
const VECS = DEPTH / 4u;
const EIGHTS = DEPTH / 8u; // vectors of eight halves of a row
const GROUPS = DEPTH / 32u;
const PITCH = DEPTH + 8u; // row pitch in workgroup memory, in f16: a multiple of 16 bytes, padded against bank conflicts

var<workgroup> xs: array<f16, TM * PITCH>;
var<workgroup> ws: array<f16, TN * PITCH>;
#if AHEAD == 2
var<workgroup> next_xs: array<f16, TM * PITCH>;
var<workgroup> next_ws: array<f16, TN * PITCH>;
#endif
var<workgroup> out: array<f32, SM * SN * SIDE * SIDE>;

#if EPILOGUE == "activate"
fn store_four(m: u32, column: u32, v: vec4f) {
  let result = vec4f(activation(v.x), activation(v.y), activation(v.z), activation(v.w));
  y[(m * p.y_stride + column) / 4u] = Stored(result);
}
#endif
#if EPILOGUE == "gated"
// Four sums of an expert's rows, plus its biases. In other products BIAS is 2: the sums have them already.
fn with_bias(tile: Tile, row: u32, v: vec4f) -> vec4f {
#if GROUPED and BIAS
  return v + vec4f(expert_bias(tile, row), expert_bias(tile, row + 1u), expert_bias(tile, row + 2u), expert_bias(tile, row + 3u));
#else
  return v;
#endif
}

fn store_four(m: u32, column: u32, gate: vec4f, up: vec4f) {
  let result = vec4f(gated(gate.x, up.x), gated(gate.y, up.y), gated(gate.z, up.z), gated(gate.w, up.w));
  y[(m * p.y_stride + column) / 4u] = Stored(result);
}
#endif
#if EPILOGUE == "split"
fn store_four(m: u32, column: u32, v: vec4f) {
  if (column < p.q_rows) {
    y[(m * p.y_stride + column) / 4u] = Stored(v);
  } else if (column < p.q_rows + p.kv_rows) {
    k_cache[(m * p.kv_rows + column - p.q_rows) / 4u] = Stored(v);
  } else {
    v_cache[(m * p.kv_rows + column - p.q_rows - p.kv_rows) / 4u] = Stored(v);
  }
}
#endif

// Group g of a row of W. After the last group it is the last one, which then meets zeros of X.
fn group_at(g: u32) -> u32 {
  return select(g, min(g, W_GROUPS - 1u), W_GROUPS % GROUPS != 0u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let n0 = wid.x * TN;
  let tile = tile_at(wid.y);
  if (tile.count == 0u) { // uniform: the buffers are read-only
    return;
  }
  let sub = t / LANES;
  let sm = sub / SN * (TM / SM);
  let sn = sub % SN * (TN / SN);
  // One variable per vector: an array would be in slow memory where the compiler does not unroll.
#for i in TM * DEPTH // 4 // (SM * SN * LANES)
  let x_at${i} = x_at(tile, (t + ${i}u * WG) / VECS);
  var x${i}: XVector;
#endfor
#if QUANT == "f16" and HALVES
  // Neighbouring threads load neighbouring halves: a row of them is one access to memory.
#for i in TN * DEPTH // 8 // (SM * SN * LANES)
  let w_at${i} = loaded_row(tile, n0, (t + ${i}u * WG) / EIGHTS) * W_GROUPS * 4u + (t + ${i}u * WG) % 4u;
  var w${i}: vec4u;
#endfor
#else
#for i in (TN * DEPTH // 32 + SM * SN * LANES - 1) // (SM * SN * LANES)
  let w_row${i} = loaded_row(tile, n0, (t + ${i}u * WG) / GROUPS);
#if HALVES and not (AHEAD and QUANT == "q4_k")
  var w${i}: Held;
#else
  var w${i}: array<vec4<f16>, 8>;
#endif
#endfor
#endif
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
  var acc${i}_${j} = Result();
#endfor
#endfor
#if EPILOGUE == "accumulate" or EPILOGUE == "store" and not GROUPED and not CACHED and BIAS != 1 and not SCALES
  // Whole tiles are stored, or read, as matrices. Rows of y are aligned as these need it.
  let whole = tile.count == TM && n0 + TN <= p.rows && p.row0 % 4u == 0u;
  let stride = p.y_stride;
  let y0 = (tile.first + sm) * stride + p.row0 + n0 + sn;
#endif
#if EPILOGUE == "accumulate"
  if (whole) {
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
    acc${i}_${j} = subgroupMatrixLoad<Result>(&y, y0 + ${i}u * SIDE * stride + ${j}u * SIDE, false, stride);
#endfor
#endfor
  }
#endif
#if BIAS == 2
  // Two columns of ones times the bias's f16 and what rounding leaves of it: results then stay in matrices.
  for (var e = t; e < TM * SIDE; e += WG) {
    xs[e / SIDE * PITCH + e % SIDE] = select(f16(0.0), f16(1.0), e % SIDE < 2u);
  }
  for (var e = t; e < TN * SIDE; e += WG) {
    let b = bias[p.row0 + loaded_row(tile, n0, e / SIDE)];
    let rest = select(f16(0.0), f16(b - f32(f16(b))), e % SIDE == 1u);
    ws[e / SIDE * PITCH + e % SIDE] = select(rest, f16(b), e % SIDE == 0u);
  }
  workgroupBarrier();
#for j in TN // SN // SIDE
  let bias${j} = subgroupMatrixLoad<Right>(&ws, (sn + ${j}u * SIDE) * PITCH, true, PITCH);
#endfor
#for i in TM // SM // SIDE
  {
    let a = subgroupMatrixLoad<Left>(&xs, (sm + ${i}u * SIDE) * PITCH, false, PITCH);
#for j in TN // SN // SIDE
    acc${i}_${j} = subgroupMatrixMultiplyAccumulate(a, bias${j}, acc${i}_${j});
#endfor
  }
#endfor
  workgroupBarrier();
#endif
#if AHEAD == 2
  {
    const g0 = 0u;
#include "lib/matmul_load.wgsl"
#include "lib/matmul_store.wgsl"
  }
  workgroupBarrier();
  for (var step = 0u; step < W_GROUPS; step += 2u * GROUPS) {
    {
      let g0 = step + GROUPS;
      if (g0 < W_GROUPS) {
#include "lib/matmul_load.wgsl"
      }
#include "lib/matmul_multiply.wgsl"
      if (g0 < W_GROUPS) {
#include "lib/matmul_store.wgsl" with xs=next_xs ws=next_ws
      }
    }
    workgroupBarrier();
    if (step + GROUPS < W_GROUPS) { // uniform
      let g0 = step + 2u * GROUPS;
      if (g0 < W_GROUPS) {
#include "lib/matmul_load.wgsl"
      }
#include "lib/matmul_multiply.wgsl" with xs=next_xs ws=next_ws
      if (g0 < W_GROUPS) {
#include "lib/matmul_store.wgsl"
      }
      workgroupBarrier();
    }
  }
#else
#if AHEAD
  {
    const g0 = 0u;
#include "lib/matmul_load.wgsl"
  }
#endif
  for (var step = 0u; step < W_GROUPS; step += GROUPS) {
#if not AHEAD
    {
      let g0 = step;
#include "lib/matmul_load.wgsl"
    }
#endif
#include "lib/matmul_store.wgsl" with g0=step
    workgroupBarrier();
#if AHEAD
    let g0 = step + GROUPS; // after the last step, what is loaded is not used: in a branch, threads would wait for it
#include "lib/matmul_load.wgsl"
#endif
#include "lib/matmul_multiply.wgsl"
    workgroupBarrier();
  }
#endif
#if EPILOGUE == "accumulate" or EPILOGUE == "store" and not GROUPED and not CACHED and BIAS != 1 and not SCALES
  if (whole) {
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
    subgroupMatrixStore(&y, y0 + ${i}u * SIDE * stride + ${j}u * SIDE, acc${i}_${j}, false, stride);
#endfor
#endfor
    return;
  }
#endif
  let lane = t % LANES;
#if EPILOGUE == "gated"
#for e in (SIDE * SIDE // 4 + LANES - 1) // LANES
  var gate${e}: vec4f;
#endfor
#endif
#for i in TM // SM // SIDE
#for j in TN // SN // SIDE
  subgroupMatrixStore(&out, sub * SIDE * SIDE, acc${i}_${j}, false, SIDE);
  workgroupBarrier();
#if EPILOGUE not in ("store", "add", "accumulate")
#for e in (SIDE * SIDE // 4 + LANES - 1) // LANES
  {
    let e = 4u * (lane + ${e}u * LANES);
    let at = sub * SIDE * SIDE + e;
    let m = sm + ${i}u * SIDE + e / SIDE;
    let v = vec4f(out[at], out[at + 1u], out[at + 2u], out[at + 3u]);
#if EPILOGUE == "gated" and ${j} % 2 == 0
    gate${e} = v;
#else
#if EPILOGUE == "gated"
    let column = n0 / 2u + sn / 2u + ${j}u / 2u * SIDE + e % SIDE;
    if (e < SIDE * SIDE && m < tile.count && column < gated_rows()) {
      let up = with_bias(tile, gated_rows() + column, v);
      store_four(y_row(tile, m), column, with_bias(tile, column, gate${e}), up);
    }
#else
    let row = n0 + sn + ${j}u * SIDE + e % SIDE;
    if (e < SIDE * SIDE && m < tile.count && row < p.rows) { // what is after the last row is padding
      store_four(y_row(tile, m), p.row0 + row, v);
    }
#endif
#endif
  }
#endfor
#else
  for (var e = lane; e < SIDE * SIDE; e += LANES) {
    let row = n0 + sn + ${j}u * SIDE + e % SIDE;
    store_result(tile, sm + ${i}u * SIDE + e / SIDE, row, out[sub * SIDE * SIDE + e]);
  }
#endif
  workgroupBarrier();
#endfor
#endfor
}
