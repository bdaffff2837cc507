// x[m] = the embedding row of the batch's token m. Tokens lie in `tokens` by sequence and position.
// ROW "position": the row of its position instead, "first": the table's first row, either of them added to x[m].
#param QUANT
#param COLS
#param ROW
#param TOKENS // room for each sequence in `tokens`

struct Params {
  row0: u32, // this part of the table holds rows row0 .. row0 + rows
  rows: u32,
  scale: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> tokens: array<u32>;
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> x: array<vec4f>; // (n, COLS padded)

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let g = id.x;
  var row = 0u - p.row0;
#if ROW == "token"
  row += tokens[seq_of(m) * TOKENS + pos_of(m)];
#endif
#if ROW == "position"
  row += pos_of(m);
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
