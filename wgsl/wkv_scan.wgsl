// y[m] = S r for each head, where every token changes the state matrix S (values, keys), each SIZE, by its decay w:
//   RULE "wkv6"  y = (S + v (u k)^T) r, then S = S diag(w) + v k^T. RWKV-6 (Peng et al. 2024).
//   RULE "gla"   S = S diag(w) + v ((1 - w) k)^T, y = S r / sqrt(SIZE). RWKV-6's time mix in Qwen 2 (Yang et al. 2024).
//   RULE "wkv7"  S = S diag(w) + v k^T - (S removed) added^T, y = S r. RWKV-7 (Peng et al. 2025).
// Of the first two, x has log(-log(w)). Grid (HEADS, runs). A thread has a row of S in registers for a run of tokens.
// Inputs are read in chunks of tokens, for all threads.
#param RULE
#param HEADS
#param GROUPS // heads of keys and values: neighbouring heads share one
#param SIZE // a multiple of 4
#param CHUNK // tokens

struct Params {
  stride: u32, // floats between tokens of x
  decay: u32, // columns of x
  receptance: u32,
  key: u32,
  value: u32,
  removed: u32, // of "wkv7"
  added: u32,
  y_stride: u32,
}
#include "lib/halves.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, stride)
#if RULE == "wkv6"
@bind var<storage, read> bonus: array<f32>; // u (HEADS, SIZE)
#endif
@bind var<storage, read_write> matrices: array<f32>; // (slots, 2, HEADS, keys, values)
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

const VECS = SIZE / 4u;

var<workgroup> decays: array<vec4f, CHUNK * VECS>;
var<workgroup> receptances: array<vec4f, CHUNK * VECS>;
var<workgroup> keys: array<vec4f, CHUNK * VECS>;
#if RULE == "wkv6"
var<workgroup> bonus_keys: array<vec4f, CHUNK * VECS>;
#endif
#if RULE == "wkv7"
var<workgroup> removals: array<vec4f, CHUNK * VECS>;
var<workgroup> additions: array<vec4f, CHUNK * VECS>;
#endif

fn four(at: u32) -> vec4f {
  return vec4f(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
}

@compute @workgroup_size(SIZE)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) row: u32) {
  let first = wid.y;
  if (first >= count() || !begins_run(first)) {
    return;
  }
  let head = wid.x;
  let group = head / (HEADS / GROUPS);
  let seq = seq_of(first);
  let end = run_end(first);
  let resumes = offset_of(first) > 0u;
  let before = (half_after(max(pos_of(first), 1u) - 1u, seq) * HEADS + head) * SIZE * SIZE + row;
#for j in SIZE // 4
  var s${j} = vec4f(0);
  if (resumes) {
#for i in 4
    s${j}[${i}] = matrices[before + (4u * ${j}u + ${i}u) * SIZE];
#endfor
  }
#endfor
  for (var chunk = first; chunk < end; chunk += CHUNK) {
    let n = min(CHUNK, end - chunk);
    for (var i = row; i < n * VECS; i += SIZE) {
      let at = (chunk + i / VECS) * p.stride + i % VECS * 4u;
      let k = four(at + p.key + group * SIZE);
      receptances[i] = four(at + p.receptance + head * SIZE);
#if RULE == "wkv7"
      decays[i] = four(at + p.decay + head * SIZE);
      keys[i] = k;
      removals[i] = four(at + p.removed + head * SIZE);
      additions[i] = four(at + p.added + head * SIZE);
#else
      let w = exp(-exp(four(at + p.decay + head * SIZE)));
      decays[i] = w;
#if RULE == "gla"
      keys[i] = k - k * w;
#else
      keys[i] = k;
      let u = head * SIZE + i % VECS * 4u;
      bonus_keys[i] = k * vec4f(bonus[u], bonus[u + 1u], bonus[u + 2u], bonus[u + 3u]);
#endif
#endif
    }
    workgroupBarrier();
    for (var c = 0u; c < n; c++) {
      let m = chunk + c;
      let v = x[m * p.stride + p.value + group * SIZE + row];
      if (offset_of(m) == 0u) { // another sequence begins, in a packed batch
#for j in SIZE // 4
        s${j} = vec4f(0);
#endfor
      }
      var sum = 0.0;
#if RULE == "wkv7"
      var lost = 0.0;
#for j in SIZE // 4
      lost += dot(s${j}, removals[c * VECS + ${j}u]);
#endfor
#endif
#for j in SIZE // 4
      {
        let at = c * VECS + ${j}u;
#if RULE == "wkv6"
        sum += dot(s${j} + v * bonus_keys[at], receptances[at]);
        s${j} = s${j} * decays[at] + v * keys[at];
#else
        s${j} = s${j} * decays[at] + v * keys[at];
#if RULE == "wkv7"
        s${j} -= lost * additions[at];
#endif
        sum += dot(s${j}, receptances[at]);
#endif
      }
#endfor
#if RULE == "gla"
      sum *= inverseSqrt(f32(SIZE));
#endif
      y[m * p.y_stride + head * SIZE + row] = sum;
      if (m + 2u >= end) {
        let after = (half_after(pos_of(m), seq) * HEADS + head) * SIZE * SIZE + row;
#for j in SIZE // 4
#for i in 4
        matrices[after + (4u * ${j}u + ${i}u) * SIZE] = s${j}[${i}];
#endfor
#endfor
      }
    }
    workgroupBarrier();
  }
}
