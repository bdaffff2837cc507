// The workgroups of matvec.wgsl that multiply x with one matrix.
#include "lib/matrix.wgsl"
#if DOT8
#param GROUPS_PER_THREAD // groups of a row that a thread loads at a time: a unit
#param AHEAD // units of weights that a thread has in flight for each row
const W_UNITS = W_GROUPS / GROUPS_PER_THREAD; // of a row
const UNITS = X_GROUPS / GROUPS_PER_THREAD;
#if ROUNDED_BEFORE

// Group g of the rows from x0 on, end to end.
fn bytes_at(x0: u32, g: u32) -> Bytes {
  let m = x0 + g / W_GROUPS;
  return Bytes(xq[xq_at(m, g % W_GROUPS, 0u)], xq[xq_at(m, g % W_GROUPS, 1u)], xq_scale[xq_scale_at(m, g % W_GROUPS)]);
}
#else
#include "lib/quantize_x.wgsl"
#endif
const SLOTS = R; // sums of a thread: one per row
#else
#include "lib/strided.wgsl"
const SLOTS = R + NORM; // and the sum of squares
#endif
#include "lib/row_sums.wgsl"

fn result(slot: u32, scale: f32, y_row: u32, row: u32, choice: u32) -> f32 {
#if SCALES
#if EXPERTS
  let sum = sum_get(slot % R, slot / R) * scale * expert_scale(row, choice);
#else
  let sum = sum_get(slot % R, slot / R) * scale * matrix_scale(row);
#endif
#else
  let sum = sum_get(slot % R, slot / R) * scale;
#endif
#if BIAS
#if EXPERTS
  return sum + expert_bias(row, choice);
#else
  return sum + bias[y_row + row];
#endif
#else
  return sum;
#endif
}

// Row of W for a row of the result. `k`: which of the experts in a sum.
fn row_at(row: u32, k: u32, choice: u32) -> u32 {
#if EXPERTS
  return expert_row(row, choice + k);
#else
  return row;
#endif
}
#if DOT8

fn fetch(row: u32, u: u32, choice: u32) -> Packed {
  return w_fetch(row_at(row, u / W_UNITS, choice), u % W_UNITS);
}
#endif

// Multiplies with the workgroup's rows of W. `rows`: of W; `y_row`: index in y of W's first row.
fn multiply(wid: vec3u, wgs: vec3u, t: u32, rows: u32, y_row: u32) {
  let tk = t % TK;
  let tr = t / TK;
#if EXPERTS
  let base = wid.x * RT;
  let choice = wid.z * USED + wid.y; // index in chosen and weights; for a sum, of the token's first
#if STATE_PER_TOKEN
  if (wid.z >= count()) { // uniform: state does not change within a dispatch
    return;
  }
#endif
#if ROUNDED_BEFORE
#if SUM
  let x0 = choice; // rows of xq
#else
  let x0 = wid.z;
#endif
#else
  let x0 = wid.z * X_GROUPS * 8u;
#endif
  let y0 = (wid.z * wgs.y + wid.y) * p.y_stride + y_row;
#else
  let base = (wid.y * wgs.x + wid.x - BESIDE) * RT;
  const choice = 0u;
#if LAST
  let x0 = (count() - 1u) * X_VECS;
#else
  const x0 = 0u; // a constant: after a load of the state, all other loads would wait for it
#endif
  let y0 = y_row;
#endif
#if BESIDE
  if (wid.x < BESIDE) {
    low_rank_input(wid.x, x0, 0u, t);
    return;
  }
#endif
#if EPILOGUE == "add"
  let own = y0 + base + t;
  var before = 0.0;
  if (t < RT && base + t < rows) { // early: the load overlaps with the product
    before = y[own];
  }
#endif
#if EPILOGUE == "gate"
  var other = 0.0;
  if (t < RT && base + t < rows) { // early, too
    other = up[p.up_first + base + t];
  }
#endif
#if EPILOGUE == "qkv"
  let rotation = rope_rotation((y_row + base + 4u * t) / 4u, 0u); // early: the loads overlap with the product
  let cache_row = stored_row(0u);
#endif
  // One variable per row: an array would be in slow memory where the compiler does not unroll.
#for r in R
  let row${r} = min(row_of(base, tr * R + ${r}u), rows - 1u);
  var sum${r} = 0.0;
#endfor
#if DOT8
  // The first weights are in flight while x is rounded, the next ones during the dot products of the current ones.
#for i in AHEAD
#for r in R
  var w${i}_${r} = fetch(row${r}, min(tk + ${i}u * TK, UNITS - 1u), choice);
#endfor
#endfor
#if not ROUNDED_BEFORE
  var squares = quantize_x(x0, t, choice, base == 0u && y_row == p.row0);
#if NORM
  squares = workgroup_sum(squares, t);
#else
  workgroupBarrier();
#endif
#endif
  for (var u0 = tk; u0 < UNITS; u0 += AHEAD * TK) {
#for i in AHEAD
    {
      let u = u0 + ${i}u * TK;
      if (u < UNITS) {
#if GROUPS_PER_THREAD == 2
        let x = array(bytes_at(x0, 2u * u), bytes_at(x0, 2u * u + 1u));
#else
        let x = array(bytes_at(x0, u));
#endif
#for r in R
        sum${r} += w_dot(w${i}_${r}, u % W_UNITS, x);
#endfor
      }
      if (u + AHEAD * TK < UNITS) {
#for r in R
        w${i}_${r} = fetch(row${r}, u + AHEAD * TK, choice);
#endfor
      }
    }
#endfor
  }
#else
#if NORM
  var squares = 0.0;
#endif
  for (var g = tk; g < X_GROUPS; g += TK) {
    var xs: array<vec4f, 8>;
    for (var i = 0u; i < 8u; i++) {
      let at = part_at(g % W_GROUPS, i);
      xs[i] = x[x0 + g / W_GROUPS * W_GROUPS * 8u + at];
      if (COLS % 32u != 0u) { // the padding's contents are undefined
        xs[i] = select(vec4f(0), xs[i], 4u * at + vec4u(0, 1, 2, 3) < vec4u(COLS));
      }
#if EXPERTS
      xs[i] *= x_factor(g, choice);
#endif
#if NORM
      squares += dot(xs[i], xs[i]);
      xs[i] *= norm[at];
#endif
    }
#for r in R
    {
      let w = w_part(row_at(row${r}, g / W_GROUPS, choice), g % W_GROUPS);
      var sum = w[0] * xs[0];
      for (var i = 1u; i < 8u; i++) {
        sum = fma(w[i], xs[i], sum);
      }
      sum${r} += sum.x + sum.y + sum.z + sum.w;
    }
#endfor
  }
#if NORM
  sum_put(R, squares, tk, tr);
#endif
#endif
  var sums: array<f32, R>;
#for r in R
  sums[${r}u] = sum${r};
#endfor
  sums_put(sums, tk, tr);
  workgroupBarrier();
#if NORM
#if DOT8
  let scale = inverseSqrt(squares / f32(COLS) + p.eps);
#else
  let scale = inverseSqrt(sum_get(R, 0u) / f32(COLS) + p.eps);
#endif
#else
#if ROUNDED_BEFORE and SCALED
  let scale = x_scale[x0];
#else
  let scale = 1.0;
#endif
#endif
#if EPILOGUE == "gated"
  let row = base / 2u + t;
  if (2u * t < RT && 2u * row < rows) {
    let gate = result(2u * t, scale, y_row, row, choice);
    y[y0 + row] = gated(gate, result(2u * t + 1u, scale, y_row, row + rows / 2u, choice));
  }
#else
#if EPILOGUE == "qkv"
  if (4u * t < RT && base + 4u * t < rows) {
    var v: vec4f;
    for (var i = 0u; i < 4u; i++) {
      v[i] = result(4u * t + i, scale, y_row, row_of(base, 4u * t + i), choice);
    }
    rope_store((y_row + base + 4u * t) / 4u, v, rotation, cache_row, 0u);
  }
#else
  if (t < RT && base + t < rows) {
#if EPILOGUE == "add"
    y[own] = before + finished(result(t, scale, y_row, base + t, choice));
#else
#if EPILOGUE == "gate"
    y[y0 + base + t] = gated(result(t, scale, y_row, base + t, choice), other);
#else
    y[y0 + base + t] = finished(result(t, scale, y_row, base + t, choice));
#endif
#endif
  }
#endif
#endif
}
