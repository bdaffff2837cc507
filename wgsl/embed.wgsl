// x[m] = scale * table[token of m]; ROW "position": x[m] += scale * table[position of m]; ROW "first": x[m] += scale *
// table[0]. Grid (groups of 32 columns / WG, tokens).
#param QUANT // fragment of wgsl/quants that reads the table
#param COLS // columns of the table
#param ROW // "token", "position" or "first"
#param TOKENS // capacity of a sequence in `tokens`
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

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let g = id.x;
  var row = 0u - p.row0;
#if ROW == "token"
  row += tokens[seq_of(m) * TOKENS + pos_of(m)];
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
    x[(m * W_GROUPS + g) * 8u + i] = w[i] * p.scale;
#else
    x[(m * W_GROUPS + g) * 8u + i] += w[i] * p.scale;
#endif
  }
}
