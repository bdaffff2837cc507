// y[m] = S[m] q[m] for each head, where every token changes the state matrix S (ROWS, COLS):
//   RULE "ssd"     S[m] = exp(dt A) S[m-1] + dt v k^T, and y[m] += skip v. Mamba-2 (Dao and Gu 2024).
//   RULE "delta"   S' = exp(dt A) S[m-1], S[m] = S' + beta (v - S' k) k^T. The gated delta rule (Yang et al. 2024); k and q
//                  have length 1, and q is divided by sqrt(COLS).
//   RULE "s6"      as "ssd", but each row has a dt, and each element an A. Mamba (Gu and Dao 2023).
// dt = softplus(input + bias). Grid (heads * ceil(ROWS / rows of a workgroup), runs). LANES threads share a row of S, which
// stays in registers for a run of tokens. Keys and queries are read in chunks of tokens, for all threads.
#param RULE
#param HEADS
#param GROUPS // heads of keys and queries
#param ROWS // values of a head
#param COLS // values of a key
#param TILED // 1: head h has the keys of group h % GROUPS; 0: neighbouring heads share a group
#param LANES
#param CHUNK // tokens, at most THREADS / LANES
#param THREADS

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
  eps: f32, // the least length of a key or query
  y_stride: u32,
}
#include "lib/runs.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> k: array<f32>; // (n, k_stride)
@bind var<storage, read> q: array<f32>; // (n, q_stride)
@bind var<storage, read> gates: array<f32>; // (n, g_stride)
@bind var<storage, read> rates: array<f32>; // A, bias of dt, skip: (HEADS) each; of "s6" (ROWS, COLS), (ROWS), (ROWS)
@bind var<storage, read_write> matrices: array<f32>; // (slots, 2, HEADS, ROWS, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

const BLOCK = THREADS / LANES; // rows of a workgroup
const BLOCKS = (ROWS + BLOCK - 1u) / BLOCK;
const PER_LANE = (COLS + LANES - 1u) / LANES;
const PAD = PER_LANE * LANES; // columns with zeros at the end

var<workgroup> keys: array<f32, CHUNK * PAD>;
var<workgroup> queries: array<f32, CHUNK * PAD>;
var<workgroup> decays: array<f32, CHUNK>;
var<workgroup> gains: array<f32, CHUNK>; // dt, or beta
#if RULE != "delta"
var<workgroup> parts: array<f32, CHUNK * THREADS>; // of each token's sums
#else
var<workgroup> parts: array<vec2f, 2u * THREADS>; // of S' k and S' q; of every second token
var<workgroup> products: array<vec3f, THREADS>; // parts of k k, q q and k q
var<workgroup> lengths: array<vec3f, CHUNK>; // 1 / |k|, 1 / |q|, k q
#endif

fn value(m: u32, head: u32, row: u32) -> f32 {
  return x[m * p.x_stride + p.values + head * ROWS + row];
}

fn softplus(u: f32) -> f32 {
  return select(log(1.0 + exp(u)), u, u > 20.0);
}

// Load a chunk of `n` tokens from token m on.
fn load(m: u32, n: u32, head: u32, t: u32) {
#if TILED
  let group = head % GROUPS;
#else
  let group = head / (HEADS / GROUPS);
#endif
  for (var i = t; i < n * PAD; i += THREADS) {
    let col = i % PAD;
    let token = m + i / PAD;
    keys[i] = 0.0;
    queries[i] = 0.0;
    if (col < COLS) {
      keys[i] = k[token * p.k_stride + p.keys + group * COLS + col];
      queries[i] = q[token * p.q_stride + p.queries + group * COLS + col];
    }
  }
#if RULE != "s6"
  if (t < n) {
    let at = (m + t) * p.g_stride + head;
    let dt = softplus(gates[at + p.dt] + rates[HEADS + head]);
    decays[t] = exp(dt * rates[head]);
#if RULE == "ssd"
    gains[t] = dt;
#else
    gains[t] = 1.0 / (1.0 + exp(-gates[at + p.beta]));
#endif
  }
#endif
  workgroupBarrier();
#if RULE == "delta"
  var sums = vec3f(0);
  if (t / LANES < n) {
    for (var col = t % LANES; col < PAD; col += LANES) {
      let key = keys[t / LANES * PAD + col];
      let query = queries[t / LANES * PAD + col];
      sums += vec3f(key * key, query * query, key * query);
    }
  }
  products[t] = sums;
  workgroupBarrier();
  if (t < n) {
    sums = vec3f(0);
    for (var lane = 0u; lane < LANES; lane++) {
      sums += products[t * LANES + lane];
    }
    lengths[t] = vec3f(1.0 / max(sqrt(sums.xy), vec2f(p.eps)), sums.z);
  }
  workgroupBarrier();
#endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.y;
  if (first >= count() || !begins_run(first)) {
    return;
  }
  let head = wid.x / BLOCKS;
  let row = wid.x % BLOCKS * BLOCK + t / LANES;
  let lane = t % LANES;
  let seq = seq_of(first);
  let end = run_end(first);
  let place = (head * ROWS + row) * COLS + lane; // in a half of a slot
  var s: array<f32, PER_LANE>;
  if (offset_of(first) > 0u && row < ROWS) {
    let at = half_after(pos_of(first) - 1u, seq) * (HEADS * ROWS * COLS) + place;
#for j in (COLS + LANES - 1) // LANES
    if (lane + ${j}u * LANES < COLS) {
      s[${j}] = matrices[at + ${j}u * LANES];
    }
#endfor
  }
#if RULE == "s6"
  var a: array<f32, PER_LANE>;
#for j in (COLS + LANES - 1) // LANES
  if (row < ROWS && lane + ${j}u * LANES < COLS) {
    a[${j}] = rates[row * COLS + lane + ${j}u * LANES];
  }
#endfor
#endif
  for (var chunk = first; chunk < end; chunk += CHUNK) {
    let n = min(CHUNK, end - chunk);
    load(chunk, n, head, t);
    for (var c = 0u; c < n; c++) {
      let m = chunk + c;
      let before = select(1.0, 0.0, offset_of(m) == 0u); // what is left of the state at a sequence's first token
      var v = 0.0;
      if (row < ROWS) {
        v = value(m, head, row);
      }
      let at = c * PAD + lane;
#if RULE == "s6"
      let dt = softplus(gates[m * p.g_stride + p.dt + min(row, ROWS - 1u)] + rates[ROWS * COLS + min(row, ROWS - 1u)]);
      let u = dt * v;
#else
      let decay = decays[c] * before;
#endif
#if RULE != "delta"
#if RULE == "ssd"
      let u = gains[c] * v;
#endif
      var sum = 0.0;
#for j in (COLS + LANES - 1) // LANES
#if RULE == "s6"
      let decay${j} = exp(dt * a[${j}]) * before;
#else
      let decay${j} = decay;
#endif
      s[${j}] = s[${j}] * decay${j} + u * keys[at + ${j}u * LANES];
      sum += s[${j}] * queries[at + ${j}u * LANES];
#endfor
      parts[c * THREADS + t] = sum;
#else
      var sums = vec2f(0);
#for j in (COLS + LANES - 1) // LANES
      s[${j}] *= decay;
      sums += s[${j}] * vec2f(keys[at + ${j}u * LANES], queries[at + ${j}u * LANES]);
#endfor
      let half = m % 2u * THREADS;
      parts[half + t] = sums;
      workgroupBarrier();
      sums = vec2f(0);
      for (var l = 0u; l < LANES; l++) {
        sums += parts[half + t - lane + l];
      }
      let length = lengths[c];
      let u = gains[c] * (v - sums.x * length.x) * length.x;
#for j in (COLS + LANES - 1) // LANES
      s[${j}] += u * keys[at + ${j}u * LANES];
#endfor
      if (lane == 0u && row < ROWS) {
        y[m * p.y_stride + head * ROWS + row] = (sums.y + u * length.z) * length.y * inverseSqrt(f32(COLS));
      }
#endif
      if (m + 2u >= end && row < ROWS) {
        let to = half_after(pos_of(m), seq) * (HEADS * ROWS * COLS) + place;
#for j in (COLS + LANES - 1) // LANES
        if (lane + ${j}u * LANES < COLS) {
          matrices[to + ${j}u * LANES] = s[${j}];
        }
#endfor
      }
    }
    workgroupBarrier();
#if RULE != "delta"
    for (var i = t; i < n * BLOCK; i += THREADS) {
      let m = chunk + i / BLOCK;
      let r = wid.x % BLOCKS * BLOCK + i % BLOCK;
      if (r < ROWS) {
#if RULE == "s6"
        var sum = rates[ROWS * COLS + ROWS + r] * value(m, head, r);
#else
        var sum = rates[2u * HEADS + head] * value(m, head, r);
#endif
        for (var l = 0u; l < LANES; l++) {
          sum += parts[i / BLOCK * THREADS + i % BLOCK * LANES + l];
        }
        y[m * p.y_stride + head * ROWS + r] = sum;
      }
    }
    workgroupBarrier();
#endif
  }
}
