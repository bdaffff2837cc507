// x[m] = scale * table[token of m]; ROW "position": x[m] += scale * table[position of m]; ROW "first": x[m] += scale *
// table[0]. Where token m is of media, x[m] is its embedding, or the table's first row. Grid (groups of 32 columns / WG, tokens).
#param QUANT // fragment of wgsl/quants that reads the table
#param COLS // columns of the table
#param ROW // "token", "position" or "first"
#param TOKENS // capacity of a sequence in `tokens`
#param MEDIA_ROW // what x is where the token is of media: "given", its embedding; "scaled", this * scale; "first", scale * the table's first row
#param FIRST_MEDIA_ID
#param WG

struct Params {
  row0: u32, // first row of this part of the table
  rows: u32, // rows of this part
  scale: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> tokens: array<u32>; // (sequences, TOKENS)
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> x: array<vec4f>; // (n, COLS padded to 32)
#if MEDIA and MEDIA_ROW != "first"
#param MEDIA_WIDTH // floats of an embedding; x gets the first COLS
@bind var<storage, read> media: array<vec4f>; // (n, MEDIA_WIDTH)
#endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let g = id.x;
  var row = 0u - p.row0;
  var scale = p.scale;
#if ROW == "token"
  let token = tokens[seq_of(m) * TOKENS + token_index(m)];
  row += token;
#if MEDIA
  if (token >= FIRST_MEDIA_ID) {
#if MEDIA_ROW != "first"
#if MEDIA_ROW == "given"
    scale = 1.0;
#endif
    if (m < count() && g < W_GROUPS) {
      for (var i = 0u; i < 8u; i++) {
        let at = g * 8u + i;
        if (at < COLS / 4u) {
          x[m * W_GROUPS * 8u + at] = media[m * (MEDIA_WIDTH / 4u) + at] * scale;
        }
      }
    }
    return;
#else
    row -= token;
#endif
  }
#endif
#endif
#if ROW == "position"
  row += offset_of(m);
#endif
  if (m >= count() || g >= W_GROUPS || row >= p.rows) {
    return;
  }
  let w = w_group(row, g);
  for (var i = 0u; i < 8u; i++) {
#if ROW == "token"
    x[(m * W_GROUPS + g) * 8u + i] = w[i] * scale;
#else
    x[(m * W_GROUPS + g) * 8u + i] += w[i] * scale;
#endif
  }
}
