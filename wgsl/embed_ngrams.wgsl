// x[m, h] = a row of the table for each head h of n-grams, which a hash of token m and the tokens before it chooses. The
// first PER_LENGTH heads have pairs of tokens, the next ones three, up to LONGEST. Before a text's first token, and from its
// last END on, are ENDs. Grid (heads * groups of 32 columns / WG, tokens).
#param QUANT // fragment of wgsl/quants that reads the table
#param COLS // columns of the table
#param HEADS
#param PER_LENGTH
#param LONGEST
#param END // the token that ends a text
#param PICTURE // the token that counts in place of media
#param TOKENS // capacity of a sequence in `tokens`
#param FIRST_MEDIA_ID
#param WG

struct Params {
  row0: u32, // first row of this part of the table
  rows: u32, // rows of this part
  x_stride: u32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> tokens: array<u32>; // (sequences, TOKENS)
@bind var<storage, read> hashes: array<vec2u>; // a factor, low and high bits, for each token; a head's first row, and rows
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> x: array<f32>; // (n, HEADS, COLS)

// The low 64 bits of token * factor.
fn times(token: u32, factor: vec2u) -> vec2u {
  let a = vec2u(token & 0xffffu, token >> 16u);
  let b = vec2u(factor.x & 0xffffu, factor.x >> 16u);
  let first = a.x * b.x;
  let middle = a.y * b.x + (first >> 16u);
  let other = a.x * b.y + (middle & 0xffffu);
  let high = a.y * b.y + (middle >> 16u) + (other >> 16u);
  return vec2u((other << 16u) | (first & 0xffffu), high + token * factor.y);
}

// v % divisor, which is less than 2^31.
fn remainder(v: vec2u, divisor: u32) -> u32 {
  var rest = v.y % divisor;
  for (var i = 32u; i > 0u; i--) {
    rest = 2u * rest + ((v.x >> (i - 1u)) & 1u);
    rest -= select(0u, divisor, rest >= divisor);
  }
  return rest;
}

fn token_at(seq: u32, pos: u32) -> u32 {
  let token = tokens[seq * TOKENS + pos];
  return select(token, PICTURE, token >= FIRST_MEDIA_ID);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let head = id.x / W_GROUPS;
  if (m >= count() || head >= HEADS) {
    return;
  }
  let seq = seq_of(m);
  let pos = pos_of(m);
  var hash = times(token_at(seq, pos), hashes[0]);
  var ended = false;
  for (var back = 1u; back < 2u + head / PER_LENGTH; back++) {
    var token = END;
    if (!ended && back <= offset_of(m)) {
      token = token_at(seq, pos - back);
    }
    ended = token == END;
    hash ^= times(token, hashes[back]);
  }
  let range = hashes[LONGEST + head];
  let row = range.x + remainder(hash, range.y) - p.row0;
  if (row >= p.rows) {
    return;
  }
  let g = id.x % W_GROUPS;
  let w = w_group(row, g);
  for (var i = 0u; i < 32u; i++) {
    if (32u * g + i < COLS) {
      x[m * p.x_stride + head * COLS + 32u * g + i] = w[i / 4u][i % 4u];
    }
  }
}
