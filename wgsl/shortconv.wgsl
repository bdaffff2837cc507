// y[m] = c[m] * sum over k < KERNEL_SIZE of weights[KERNEL_SIZE - 1 - k] * (b * z)[m - k], per channel: LFM2's gated
// short convolution. Grid (COLS / 2 / THREADS, tokens). b * z is cached by position, so a sequence can continue from any
// position. Earlier tokens of the batch are rounded like the cache, so the result does not depend on which tokens they are.
#param COLS // channels
#param KERNEL_SIZE // tokens
#param KV // element type of the cache: "f16" or "f32"
#param THREADS

struct Params {
  x_stride: u32, // floats between tokens of x
  y_stride: u32,
}
#include "lib/sequence.wgsl"
#include "lib/pages.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride): b, c and z of each token
@bind var<storage, read> weights: array<f32>; // (COLS, KERNEL_SIZE); the last weight is for the token itself
@bind var<storage, read_write> conv_cache: array<u32>; // (rows, COLS): pairs of f16, or f32
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

fn cached_word(seq: u32, pos: u32, i: u32) -> u32 {
  return (row_in(page_of(pos, seq), pos) * COLS + i) / 2u;
}

fn product(m: u32, i: u32) -> vec2f {
  let at = m * p.x_stride + i;
  let z = at + 2u * COLS;
  return vec2f(x[at], x[at + 1u]) * vec2f(x[z], x[z + 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = 2u * id.x; // two channels per thread: one word of an f16 cache
  let m = id.y;
  if (m >= count() || i >= COLS) {
    return;
  }
  let pos = pos_of(m);
  let seq = seq_of(m);
  let own = product(m, i);
  let word = cached_word(seq, pos, i);
#if KV == "f16"
  conv_cache[word] = pack2x16float(own);
#else
  conv_cache[2u * word] = bitcast<u32>(own.x);
  conv_cache[2u * word + 1u] = bitcast<u32>(own.y);
#endif
  var sum = vec2f(0);
  for (var back = 0u; back < KERNEL_SIZE; back++) {
    if (back > offset_of(m)) {
      break;
    }
    var u = vec2f(0);
    let other = m - min(back, m);
    if (back <= m && seq_of(other) == seq && pos_of(other) == pos - back) {
      u = product(m - back, i);
#if KV == "f16"
      if (back > 0u) {
        u = unpack2x16float(pack2x16float(u) ^ (count() >> 31u)); // xor with 0, or a compiler may drop the rounding
      }
#endif
    } else { // from an earlier batch
      let at = cached_word(seq, pos - back, i);
#if KV == "f16"
      u = unpack2x16float(conv_cache[at]);
#else
      u = vec2f(bitcast<f32>(conv_cache[2u * at]), bitcast<f32>(conv_cache[2u * at + 1u]));
#endif
    }
    let k = KERNEL_SIZE - 1u - back;
    sum += u * vec2f(weights[i * KERNEL_SIZE + k], weights[(i + 1u) * KERNEL_SIZE + k]);
  }
  let c = m * p.x_stride + COLS + i;
  let to = m * p.y_stride + i;
  y[to] = x[c] * sum.x;
  y[to + 1u] = x[c + 1u] * sum.y;
}
