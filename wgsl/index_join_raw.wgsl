// The index of sparse attention: joins the keys of POOL positions where the last one is the batch's: their mean, after an RMS
// norm and a rotation to the first one's position. The last one's row of the cache has it after its own key. Grid (tokens).
#param SIZE // of a key
#param POOL // positions whose keys are joined
#param ROPE // rotated dimensions
#param FIRST // the first of them
#param NEOX // 1: dimension i pairs with i + ROPE / 2; 0: with its neighbour
#param ROW // columns of a row of the cache
#param WG // a power of two
#param SG

struct Params {
  rope_scale: f32, // factor on rotated keys (YaRN), else 1
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> norm: array<f32>; // (2 SIZE): factors of a key from SIZE on
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
@bind var<storage, read_write> k_cache: array<f32>; // (rows, ROW)
#include "lib/pages.wgsl"
#include "lib/rotation.wgsl"
#include "lib/reduce.wgsl"

var<workgroup> key: array<f32, SIZE>;

fn pair_at(i: u32) -> vec2u { // the dimensions of pair i
  return FIRST + select(vec2u(2u * i, 2u * i + 1u), vec2u(i, i + ROPE / 2u), NEOX == 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count() || (offset_of(m) + 1u) % POOL != 0u) { // uniform: state does not change within a dispatch
    return;
  }
  let seq = seq_of(m);
  let last = pos_of(m);
  var squares = 0.0;
  for (var i = t; i < SIZE; i += WG) {
    var sum = 0.0;
    for (var r = 0u; r < POOL; r++) {
      let s = last + 1u - POOL + r;
      sum += k_cache[row_in(page_of(s, seq), s) * ROW + i];
    }
    key[i] = sum / f32(POOL);
    squares += key[i] * key[i];
  }
  let scale = inverseSqrt(workgroup_sum(squares, t) / f32(SIZE) + p.eps);
  for (var i = t; i < SIZE; i += WG) {
    key[i] *= scale * norm[SIZE + i];
  }
  workgroupBarrier();
  let to = row_in(page_of(last, seq), last) * ROW + SIZE;
  for (var i = t; i < ROPE / 2u; i += WG) {
    let at = pair_at(i);
    let turned = p.rope_scale * cos_sin((offset_of(m) + 1u - POOL) * rope_freqs[i]);
    let v = rotate(vec2f(key[at.x], key[at.y]), turned);
    k_cache[to + at.x] = v.x;
    k_cache[to + at.y] = v.y;
  }
  for (var i = t; i < SIZE - ROPE; i += WG) {
    let at = select(i + ROPE, i, i < FIRST);
    k_cache[to + at] = key[at];
  }
}
