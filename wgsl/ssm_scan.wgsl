// y[m] = S[m] q[m] for each head, where every token changes the state matrix S (ROWS, COLS):
//   RULE "ssd"     S[m] = exp(dt A) S[m-1] + dt v k^T, and y[m] += skip v. Mamba-2 (Dao and Gu 2024).
//   RULE "delta"   S' = exp(dt A) S[m-1], S[m] = S' + beta (v - S' k) k^T. The gated delta rule (Yang et al. 2024); k and q
//                  have length 1, and q is divided by sqrt(COLS). PER_KEY: each column of S has a dt (Kimi Team 2025).
//   RULE "s6"      as "ssd", but each row has a dt, and each element an A. Mamba (Gu and Dao 2023).
// dt = softplus(input + bias). Grid (heads * ceil(ROWS / rows of a workgroup), runs). LANES threads share R rows of S, which
// stay in registers for a run of tokens. Inputs are read in chunks of tokens, for all threads; while one chunk is computed,
// the next one is on its way.
#param RULE
#param HEADS
#param GROUPS // heads of keys and queries
#param ROWS // values of a head
#param COLS // values of a key
#param TILED // 1: head h has the keys of group h % GROUPS; 0: neighbouring heads share a group
#param PER_KEY // of "delta"; 2: each dt is sigmoid(A (input + bias)), and `bound` is in the place of A; 3: sigmoid(-A ...)
#param LANES // a power of two
#param VECTORS // of four columns that a lane has of each of its rows
#param R
#param CHUNK // tokens, at most WG / LANES
#param WG
#param SG

struct Params {
  x_stride: u32, // floats between tokens of x
  values: u32, // columns of x
  k_stride: u32,
  keys: u32,
  q_stride: u32,
  queries: u32,
  g_stride: u32, // floats between tokens of gates
  dt: u32, // columns of gates
  beta: u32,
  eps: f32, // added to the squared length of a key or query
#if PER_KEY == 2 or PER_KEY == 3
  bound: f32,
#endif
  y_stride: u32,
}
#include "lib/halves.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> k: array<f32>; // (n, k_stride)
@bind var<storage, read> q: array<f32>; // (n, q_stride)
@bind var<storage, read> gates: array<f32>; // (n, g_stride)
@bind var<storage, read> rates: array<f32>; // A, bias of dt, skip: (HEADS) each; of "s6" (ROWS, COLS), (ROWS), (ROWS)
@bind var<storage, read_write> matrices: array<f32>; // (slots, 2, HEADS, ROWS, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

const GROUP_ROWS = WG / LANES; // rows that a workgroup has at a time
const BLOCK = GROUP_ROWS * R; // rows of a workgroup
const BLOCKS = (ROWS + BLOCK - 1u) / BLOCK;
const PITCH = VECTORS * LANES; // vectors of a key, with zeros at the end

var<workgroup> keys: array<vec4f, CHUNK * PITCH>;
var<workgroup> queries: array<vec4f, CHUNK * PITCH>;
var<workgroup> values: array<f32, CHUNK * BLOCK>;
var<workgroup> decays: array<f32, CHUNK>; // zero at a sequence's first token; of "s6" else one
#if RULE == "s6"
var<workgroup> steps: array<f32, CHUNK * BLOCK>; // dt of each row
#else
var<workgroup> gains: array<f32, CHUNK>; // dt, or beta
#endif
#if RULE == "delta"
var<workgroup> lengths: array<vec3f, CHUNK>; // 1 / |k|, 1 / |q|, k q
#endif
#if PER_KEY
var<workgroup> key_decays: array<vec4f, CHUNK * PITCH>; // the decay of each column
#endif
#if RULE == "delta"
alias Sums = vec2f;
#else
alias Sums = f32;
#endif
#if SG < LANES
var<workgroup> parts: array<Sums, WG>;
#endif

fn softplus(u: f32) -> f32 {
  return select(log(1.0 + exp(u)), u, u > 20.0);
}

// The sum of v over the lanes that share a row.
fn sum_of_lanes(v: Sums, t: u32) -> Sums {
#if SG >= LANES
  var sum = v;
  for (var width = 1u; width < LANES; width *= 2u) {
    sum += subgroupShuffleXor(sum, width);
  }
#else
  parts[t] = v;
  workgroupBarrier();
  var sum = Sums();
  for (var lane = 0u; lane < LANES; lane++) {
    sum += parts[t - t % LANES + lane];
  }
  workgroupBarrier();
#endif
  return sum;
}

// Four columns from `col` on; zeros after the last one.
fn key(m: u32, group: u32, col: u32) -> vec4f {
  let at = m * p.k_stride + p.keys + group * COLS;
#if COLS % 4
  let c = min(col + vec4u(0, 1, 2, 3), vec4u(COLS - 1u));
  return select(vec4f(0), vec4f(k[at + c.x], k[at + c.y], k[at + c.z], k[at + c.w]), col + vec4u(0, 1, 2, 3) < vec4u(COLS));
#else
  let c = at + min(col, COLS - 4u);
  return select(vec4f(0), vec4f(k[c], k[c + 1u], k[c + 2u], k[c + 3u]), col < COLS);
#endif
}

fn query(m: u32, group: u32, col: u32) -> vec4f {
  let at = m * p.q_stride + p.queries + group * COLS;
#if COLS % 4
  let c = min(col + vec4u(0, 1, 2, 3), vec4u(COLS - 1u));
  return select(vec4f(0), vec4f(q[at + c.x], q[at + c.y], q[at + c.z], q[at + c.w]), col + vec4u(0, 1, 2, 3) < vec4u(COLS));
#else
  let c = at + min(col, COLS - 4u);
  return select(vec4f(0), vec4f(q[c], q[c + 1u], q[c + 2u], q[c + 3u]), col < COLS);
#endif
}

#if PER_KEY
fn key_decay(m: u32, head: u32, col: u32) -> vec4f { // the decay of four columns; zero at a sequence's first token
  let c = head * COLS + min(col + vec4u(0, 1, 2, 3), vec4u(COLS - 1u));
  var exponent = vec4f(0);
  for (var i = 0u; i < 4u; i++) {
    let u = gates[m * p.g_stride + p.dt + c[i]] + rates[HEADS + c[i]];
#if PER_KEY == 2
    exponent[i] = p.bound / (1.0 + exp(-rates[head] * u));
#else
#if PER_KEY == 3
    exponent[i] = p.bound / (1.0 + exp(rates[head] * u));
#else
    exponent[i] = rates[head] * softplus(u);
#endif
#endif
  }
  return select(exp(exponent), vec4f(0), offset_of(m) == 0u);
}
#endif

fn save(at: u32, col: u32, v: vec4f) {
#for i in 4
  if (col + ${i}u < COLS) {
    matrices[at + col + ${i}u] = v[${i}];
  }
#endfor
}

fn saved(at: u32, col: u32) -> vec4f {
  var v = vec4f(0);
#for i in 4
  if (col + ${i}u < COLS) {
    v[${i}] = matrices[at + col + ${i}u];
  }
#endfor
  return v;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.y;
  if (first >= count() || !begins_run(first)) {
    return;
  }
  let head = wid.x / BLOCKS;
  let top = wid.x % BLOCKS * BLOCK; // the first row of the workgroup
#if TILED
  let group = head % GROUPS;
#else
  let group = head / (HEADS / GROUPS);
#endif
  let lane = t % LANES;
  let seq = seq_of(first);
  let end = run_end(first);
  let resumes = offset_of(first) > 0u;
  let before = half_after(max(pos_of(first), 1u) - 1u, seq) * (HEADS * ROWS * COLS);
#for r in R
  let row${r} = top + ${r}u * GROUP_ROWS + t / LANES;
  let place${r} = (head * ROWS + row${r}) * COLS; // in a half of a slot
#for j in VECTORS
  var s${r}_${j} = vec4f(0);
  if (resumes && row${r} < ROWS) {
    s${r}_${j} = saved(before + place${r}, 4u * (lane + ${j}u * LANES));
  }
#if RULE == "s6"
  var a${r}_${j} = vec4f(0);
  if (row${r} < ROWS) {
    for (var i = 0u; i < 4u; i++) {
      let col = 4u * (lane + ${j}u * LANES) + i;
      a${r}_${j}[i] = select(0.0, rates[row${r} * COLS + min(col, COLS - 1u)], col < COLS);
    }
  }
#endif
#endfor
#endfor
#for i in (CHUNK * VECTORS * LANES + WG - 1) // WG
  var key${i}: vec4f;
  var query${i}: vec4f;
#if PER_KEY
  var key_decay${i}: vec4f;
#endif
#endfor
#for i in (CHUNK * R + LANES - 1) // LANES
  var value${i}: f32;
#endfor
  for (var chunk = first; chunk < end; chunk += CHUNK) {
    if (chunk == first) {
      let m0 = chunk;
#include "lib/scan_fetch.wgsl"
    }
    let n = min(CHUNK, end - chunk);
#for i in (CHUNK * VECTORS * LANES + WG - 1) // WG
    if (t + ${i}u * WG < CHUNK * PITCH) {
      keys[t + ${i}u * WG] = key${i};
      queries[t + ${i}u * WG] = query${i};
#if PER_KEY
      key_decays[t + ${i}u * WG] = key_decay${i};
#endif
    }
#endfor
#for i in (CHUNK * R + LANES - 1) // LANES
    if (t + ${i}u * WG < CHUNK * BLOCK) {
      values[t + ${i}u * WG] = value${i};
    }
#endfor
#if RULE == "s6"
    for (var i = t; i < n * BLOCK; i += WG) {
      let row = min(top + i % BLOCK, ROWS - 1u);
      steps[i] = softplus(gates[(chunk + i / BLOCK) * p.g_stride + p.dt + row] + rates[ROWS * COLS + row]);
    }
#endif
    if (t < n) {
#if PER_KEY
      var decay = 1.0;
#else
      var decay = select(1.0, 0.0, offset_of(chunk + t) == 0u);
#endif
#if RULE != "s6"
      let at = (chunk + t) * p.g_stride + head;
#if not PER_KEY
      let dt = softplus(gates[at + p.dt] + rates[HEADS + head]);
      decay *= exp(dt * rates[head]);
#endif
#if RULE == "ssd"
      gains[t] = dt;
#else
      gains[t] = 1.0 / (1.0 + exp(-gates[at + p.beta]));
#endif
#endif
      decays[t] = decay;
    }
    workgroupBarrier();
#if RULE == "delta"
    {
      var squares = vec2f(0);
      var product = vec2f(0);
      let c = min(t / LANES, CHUNK - 1u);
#for j in VECTORS
      {
        let key = keys[c * PITCH + lane + ${j}u * LANES];
        let query = queries[c * PITCH + lane + ${j}u * LANES];
        squares += vec2f(dot(key, key), dot(query, query));
        product.x += dot(key, query);
      }
#endfor
      squares = sum_of_lanes(squares, t);
      product = sum_of_lanes(product, t);
      if (lane == 0u && t / LANES < n) {
        lengths[c] = vec3f(inverseSqrt(squares + p.eps), product.x);
      }
    }
    workgroupBarrier();
#endif
    if (chunk + CHUNK < end) {
      let m0 = chunk + CHUNK;
#include "lib/scan_fetch.wgsl"
    }
    for (var c = 0u; c < n; c++) {
      let m = chunk + c;
      let decay = decays[c];
#for j in VECTORS
      let k${j} = keys[c * PITCH + lane + ${j}u * LANES];
      let q${j} = queries[c * PITCH + lane + ${j}u * LANES];
#if PER_KEY
      let key_decay${j} = key_decays[c * PITCH + lane + ${j}u * LANES];
#for r in R
      s${r}_${j} *= key_decay${j};
#endfor
#endif
#endfor
#for r in R
      let v${r} = values[c * BLOCK + ${r}u * GROUP_ROWS + t / LANES];
      var sums${r} = Sums();
#if RULE == "delta"
#for j in VECTORS
      sums${r} += vec2f(dot(s${r}_${j}, k${j}), dot(s${r}_${j}, q${j}));
#endfor
#else
#if RULE == "s6"
      let dt${r} = steps[c * BLOCK + ${r}u * GROUP_ROWS + t / LANES];
      let u${r} = dt${r} * v${r};
#else
      let u${r} = gains[c] * v${r};
#endif
#for j in VECTORS
#if RULE == "s6"
      s${r}_${j} = s${r}_${j} * exp(dt${r} * a${r}_${j}) * decay + u${r} * k${j};
#else
      s${r}_${j} = s${r}_${j} * decay + u${r} * k${j};
#endif
      sums${r} += dot(s${r}_${j}, q${j});
#endfor
#endif
#endfor
#if SG >= LANES
      // The rows take turns, so that their shuffles overlap.
#for w in LANES.bit_length() - 1
#for r in R
      sums${r} += subgroupShuffleXor(sums${r}, 1u << ${w}u);
#endfor
#endfor
#else
#for r in R
      sums${r} = sum_of_lanes(sums${r}, t);
#endfor
#endif
#for r in R
#if RULE == "delta"
      let u${r} = gains[c] * (v${r} - decay * sums${r}.x * lengths[c].x) * lengths[c].x;
#for j in VECTORS
      s${r}_${j} = s${r}_${j} * decay + u${r} * k${j};
#endfor
      let result${r} = (decay * sums${r}.y + u${r} * lengths[c].z) * lengths[c].y * inverseSqrt(f32(COLS));
#else
#if RULE == "s6"
      let result${r} = sums${r} + rates[ROWS * COLS + ROWS + min(row${r}, ROWS - 1u)] * v${r};
#else
      let result${r} = sums${r} + rates[2u * HEADS + head] * v${r};
#endif
#endif
      if (lane == 0u && row${r} < ROWS) {
        y[m * p.y_stride + head * ROWS + row${r}] = result${r};
      }
#endfor
      if (m + 2u >= end) {
        let after = half_after(pos_of(m), seq) * (HEADS * ROWS * COLS);
#for r in R
#for j in VECTORS
        if (row${r} < ROWS) {
          save(after + place${r}, 4u * (lane + ${j}u * LANES), s${r}_${j});
        }
#endfor
#endfor
      }
    }
    workgroupBarrier();
  }
}
