// The workgroups of matvec_small_batch.wgsl that multiply the tokens with one matrix.
#param TOKENS // of a workgroup: 2, 4 or 8
#param STAGED // 1: a workgroup's threads load x into workgroup memory together, CHUNK units of each token at a time
#param STAGED_GROUPS // groups of CHUNK units
#param AHEAD // units of weights that a thread has in flight for each row; 0: it loads them as it multiplies. With DOT8
#include "lib/matrix.wgsl"

// Index of a workgroup among those of its slice. It comes from the grid, not from the state: the first loads of weights need
// not wait for a load.
fn index_of(wid: vec3u, wgs: vec3u) -> u32 {
  return wid.z * wgs.y + wid.y;
}
#if DOT8
#param GROUPS_PER_THREAD // groups of a row that a thread loads at a time: a unit
const AT_A_TIME = max(AHEAD, 1u); // units
const UNITS = W_GROUPS / GROUPS_PER_THREAD;
#if ROUNDS
#include "lib/round_tokens.wgsl"
#else

fn bytes_at(m: u32, g: u32) -> Bytes {
  return Bytes(xq[xq_at(m, g, 0u)], xq[xq_at(m, g, 1u)], xq_scale[xq_scale_at(m, g)]);
}
#endif

fn bytes_of(m: u32, u: u32) -> array<Bytes, GROUPS_PER_THREAD> {
#if GROUPS_PER_THREAD == 2
  return array(bytes_at(m, 2u * u), bytes_at(m, 2u * u + 1u));
#else
  return array(bytes_at(m, u));
#endif
}
#endif
#if DOT8 and STAGED
// As in rounded_rows.wgsl, of CHUNK units: a unit's groups and their halves are CHUNK entries apart.
const CHUNK = STAGED_GROUPS / GROUPS_PER_THREAD;
var<workgroup> staged: array<vec4u, TOKENS * 2u * STAGED_GROUPS>;
var<workgroup> staged_scale: array<vec2f, TOKENS * STAGED_GROUPS>;

// Stores units u0 to u0 + CHUNK of n tokens from m0 on.
fn stage(u0: u32, m0: u32, n: u32, t: u32) {
  for (var i = t; i < n * CHUNK; i += WG) {
    let m = i / CHUNK;
    let u = min(u0 + i % CHUNK, UNITS - 1u);
#for j in GROUPS_PER_THREAD
    {
      let g = GROUPS_PER_THREAD * u + ${j}u;
      let at = (m * GROUPS_PER_THREAD + ${j}u) * CHUNK + i % CHUNK;
      staged[at] = xq[xq_at(m0 + m, g, 0u)];
      staged[TOKENS * STAGED_GROUPS + at] = xq[xq_at(m0 + m, g, 1u)];
      staged_scale[at] = xq_scale[xq_scale_at(m0 + m, g)];
    }
#endfor
  }
}

fn staged_at(at: u32) -> Bytes {
  return Bytes(staged[at], staged[TOKENS * STAGED_GROUPS + at], staged_scale[at]);
}

// Unit i of the chunk, of token m of the workgroup.
fn staged_bytes(m: u32, i: u32) -> array<Bytes, GROUPS_PER_THREAD> {
#if GROUPS_PER_THREAD == 2
  return array(staged_at(2u * m * CHUNK + i), staged_at((2u * m + 1u) * CHUNK + i));
#else
  return array(staged_at(m * CHUNK + i));
#endif
}
#endif

#if DOT8
const SLOTS = R * TOKENS; // sums of a thread
#else
#include "lib/strided.wgsl"
const SLOTS = (R + NORM) * TOKENS; // its rows for each token, then a sum of squares per token
#endif
#include "lib/row_sums.wgsl"

fn scale_of(m0: u32, m: u32) -> f32 {
#if DOT8 and NORM
  return norm_scale(m);
#else
#if NORM
  return inverseSqrt(sum_get(TOKENS * R + m, 0u) / f32(COLS) + p.eps);
#else
#if DOT8 and SCALED
  return x_scale[m0 + m];
#else
  return 1.0;
#endif
#endif
#endif
}

fn result(slot: u32, m: u32, scale: f32, y_row: u32, row: u32) -> f32 {
#if SCALES
  var sum = sum_get(m * R + slot % R, slot / R) * scale * matrix_scale(row);
#else
  var sum = sum_get(m * R + slot % R, slot / R) * scale;
#endif
#if BIAS
  sum += bias[y_row + row];
#endif
#if LOW_RANK_OWN_ROWS and EPILOGUE != "add"
  // A token alone has the product rounded before: it is stored between two dispatches. The select() keeps compilers from
  // contracting the multiplication above and this addition to one operation.
  sum = select(sum, 0.0, sum > 3.4e38) + low_rank[m * RT + slot];
#endif
  return sum;
}
#if LOW_RANK_OWN_ROWS

// What adapters add to the workgroup's rows of n tokens. Its threads compute it before they multiply, while the first weights
// are in flight. This saves a dispatch, and the product keeps its epilogue.
var<workgroup> low_rank: array<f32, TOKENS * RT>;

fn low_rank_put(t: u32, base: u32, y_row: u32, m0: u32, n: u32) {
  for (var i = t; i < n * RT; i += WG) {
    low_rank[i] = low_rank_row_L(m0 + i / RT, y_row + row_of(base, i % RT));
  }
}
#endif

#if LOOPED
// Vector `at` of the x that begins at x0, of token m, times the norm's weights, whose squares it adds.
fn normed_at(x0: u32, at: u32, m: u32, sums: ptr<function, array<f32, SLOTS>>) -> vec4f {
  var v = x[x0 + at];
  if (COLS % 32u != 0u) { // the padding's contents are undefined
    v = select(vec4f(0), v, 4u * at + vec4u(0, 1, 2, 3) < vec4u(COLS));
  }
#if NORM
  sums[TOKENS * R + m] += dot(v, v);
  v *= norm[at];
#endif
  return v;
}
#endif

// Multiplies the tokens from m0 on with the rows of W that are the turn of workgroup `index`. `rows`: of W; `y_row`: index in
// y of W's first row.
fn multiply(index: u32, m0: u32, t: u32, rows: u32, y_row: u32) {
  let tk = t % TK;
  let tr = t / TK;
  let base = index * RT;
  if (base >= rows) { // beyond the last row, for all threads
    return;
  }
#if LOOPED
  var sums = array<f32, SLOTS>(); // explicit zeros
#else
  // One variable per sum: an array would be in slow memory where the compiler does not unroll.
#for m in TOKENS
#for r in R
  var sum${m}_${r} = 0.0;
#endfor
#if NORM and not DOT8
  var squares${m} = 0.0;
#endif
#endfor
#endif
#for r in R
  let row${r} = min(row_of(base, tr * R + ${r}u), rows - 1u);
#endfor
#if DOT8
  // The first weights are in flight while x is rounded or staged, the next ones during the dot products of the current ones.
#for i in AHEAD
#for r in R
  var w${i}_${r} = w_fetch(row${r}, min(tk + ${i}u * TK, UNITS - 1u));
#endfor
#endfor
#endif
  let tokens = count();
  if (m0 >= tokens) { // the grid is for more. Uniform: state does not change within a dispatch
    return;
  }
  let n = min(tokens - m0, TOKENS);
#if DOT8
#if ROUNDS
  round_tokens(m0, n, t, base == 0u && y_row == p.row0);
  workgroupBarrier();
#endif
#if LOW_RANK_OWN_ROWS
  low_rank_put(t, base, y_row, m0, n);
#endif
#if STAGED
  for (var first = 0u; first < UNITS; first += CHUNK) {
    if (first > 0u) {
      workgroupBarrier();
    }
    stage(first, m0, n, t);
    workgroupBarrier();
    let end = min(first + CHUNK, UNITS);
#else
    const first = 0u;
    const end = UNITS;
#endif
    for (var u0 = first + tk; u0 < end; u0 += AT_A_TIME * TK) {
#for i in AHEAD or 1
      {
        let u = u0 + ${i}u * TK;
        if (${i}u == 0u || u < end) {
#if not AHEAD
#for r in R
          let w${i}_${r} = w_fetch(row${r}, u);
#endfor
#endif
          // Two, two and four tokens at a time, without a branch for each, so that their loads are in flight together. The
          // first two without any branch, so that the others reuse the unpacked weights.
#for b in TOKENS // 2 if TOKENS < 8 else 3
          if (${b}u == 0u || n > 2u * ${b}u) {
#for m in 2 * ${b}, 2 * ${b} + 2 if ${b} < 2 else TOKENS
#if STAGED
            let x${m} = staged_bytes(${m}u, u - first);
#else
#if ROUNDS
            let x${m} = bytes_of(${m}u, u);
#else
            let x${m} = bytes_of(m0 + min(${m}u, n - 1u), u);
#endif
#endif
#endfor
#for m in 2 * ${b}, 2 * ${b} + 2 if ${b} < 2 else TOKENS
#for r in R
            sum${m}_${r} += w_dot(w${i}_${r}, u, x${m});
#endfor
#endfor
          }
#endfor
        }
#if AHEAD
#for r in R
        w${i}_${r} = w_fetch(row${r}, min(u + AHEAD * TK, UNITS - 1u));
#endfor
#endif
      }
#endfor
    }
#if STAGED
  }
#endif
#else
  for (var g = tk; g < W_GROUPS; g += TK) {
#for r in R
    let w${r} = w_part(row${r}, g);
#endfor
#if NORM
#for i in 8
    let norm${i} = norm[part_at(g, ${i}u)];
#endfor
#endif
#if LOOPED
    for (var m = 0u; m < n; m++) {
      let at = (m0 + m) * X_VECS;
#for i in 8
      let x${i} = normed_at(at, part_at(g, ${i}u), m, &sums);
#endfor
#for r in R
      {
        var sum = w${r}[0] * x0;
#for i in 1, 8
        sum = fma(w${r}[${i}], x${i}, sum);
#endfor
        sums[m * R + ${r}u] += sum.x + sum.y + sum.z + sum.w;
      }
#endfor
    }
#else
#for m in TOKENS
    if (${m}u < n) {
      let at = (m0 + ${m}u) * X_VECS;
#for i in 8
      var x${i} = x[at + part_at(g, ${i}u)];
      if (COLS % 32u != 0u) { // the padding's contents are undefined
        x${i} = select(vec4f(0), x${i}, 4u * part_at(g, ${i}u) + vec4u(0, 1, 2, 3) < vec4u(COLS));
      }
#if NORM
      squares${m} += dot(x${i}, x${i});
      x${i} *= norm${i};
#endif
#endfor
#for r in R
      {
        var sum = w${r}[0] * x0;
#for i in 1, 8
        sum = fma(w${r}[${i}], x${i}, sum);
#endfor
        sum${m}_${r} += sum.x + sum.y + sum.z + sum.w;
      }
#endfor
    }
#endfor
#endif
  }
#endif
#if LOOPED
  for (var m = 0u; m < n; m++) {
#for r in R
    sum_put(m * R + ${r}u, sums[m * R + ${r}u], tk, tr);
#endfor
#if NORM
    sum_put(TOKENS * R + m, sums[TOKENS * R + m], tk, tr);
#endif
  }
#else
  var sums: array<f32, R * TOKENS>;
#for m in TOKENS
#for r in R
  sums[${m}u * R + ${r}u] = sum${m}_${r};
#endfor
#if NORM and not DOT8
  sum_put(TOKENS * R + ${m}u, squares${m}, tk, tr);
#endif
#endfor
  sums_put(sums, tk, tr);
#endif
  workgroupBarrier();
#if EPILOGUE == "gated"
  const ROWS_PER_RESULT = 2u; // rows that one thread combines
#else
#if EPILOGUE == "qkv"
  const ROWS_PER_RESULT = 4u;
#else
  const ROWS_PER_RESULT = 1u;
#endif
#endif
  const RESULTS_PER_TOKEN = RT / ROWS_PER_RESULT;
  for (var i = t; i < n * RESULTS_PER_TOKEN; i += WG) {
    let m = i / RESULTS_PER_TOKEN;
    let slot = ROWS_PER_RESULT * (i % RESULTS_PER_TOKEN);
    let y0 = (m0 + m) * p.y_stride;
    let scale = scale_of(m0, m);
#if EPILOGUE == "gated"
    let row = (base + slot) / 2u;
    if (2u * row < rows) {
      let gate = result(slot, m, scale, y_row, row);
      y[y0 + y_row + row] = gated(gate, result(slot + 1u, m, scale, y_row, row + rows / 2u));
    }
#else
    if (base + slot < rows) {
#if EPILOGUE == "qkv"
      var v: vec4f;
      for (var j = 0u; j < 4u; j++) {
        v[j] = result(slot + j, m, scale, y_row, row_of(base, slot + j));
      }
      let quad = (y_row + base + slot) / 4u;
      rope_store(quad, v, rope_rotation(quad, m0 + m), stored_row(m0 + m), y0);
#else
#if EPILOGUE == "add"
#if LOW_RANK_OWN_ROWS
      let before = y[y0 + y_row + base + slot] + finished(result(slot, m, scale, y_row, base + slot));
      y[y0 + y_row + base + slot] = before + low_rank[m * RT + slot]; // in this order for one token as well
#else
      y[y0 + y_row + base + slot] += finished(result(slot, m, scale, y_row, base + slot));
#endif
#else
#if EPILOGUE == "gate"
      let other = up[(m0 + m) * p.up_stride + p.up_first + base + slot];
      y[y0 + y_row + base + slot] = gated(result(slot, m, scale, y_row, base + slot), other);
#else
      y[y0 + y_row + base + slot] = finished(result(slot, m, scale, y_row, base + slot));
#endif
#endif
#endif
    }
#endif
  }
}
