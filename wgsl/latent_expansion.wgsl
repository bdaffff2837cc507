// The matrices that make keys and values of latents (DeepSeek-AI 2024), of the heads from head0 on, as a matrix of f16: each head's
// NOPE rows of keys, then its VALUE rows of values. Grid (rows of a head * groups of 32 columns / WG, heads).
#param QUANT // fragment of wgsl/quants that reads w
#param VALUES // 1: w has the values, else the keys
#param TRANSPOSED // 1: a head's matrix in w has a row for each dimension of the latent
#param NOPE
#param VALUE
#param RANK
#param WG
#param F16

struct Params {
  heads: u32,
  w_first: u32, // the first head's row of w
  w_head: u32, // rows between heads of w
}
@bind var<uniform> p: Params;
const COLS = select(RANK, NOPE, TRANSPOSED == 1u); // of w
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> y: array<f16>; // (heads * (NOPE + VALUE), RANK padded to 32 with zeros)
const ROWS = select(NOPE, VALUE, VALUES == 1u); // of a head, in y
const PITCH = (RANK + 31u) / 32u * 32u;
const W_ROWS = select(ROWS, RANK, TRANSPOSED == 1u); // of a head, in w

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let head = id.y;
  let row = id.x / W_GROUPS; // of the head's matrix in w
  let g = id.x % W_GROUPS;
  if (row >= W_ROWS || head >= p.heads) {
    return;
  }
  let first = head * (NOPE + VALUE) + select(0u, NOPE, VALUES == 1u); // row of y
  let w = w_group(p.w_first + head * p.w_head + row, g);
  for (var i = 0u; i < 32u; i++) {
    let col = 32u * g + i;
#if TRANSPOSED
    if (col < NOPE) {
      y[(first + col) * PITCH + row] = f16(w[i / 4u][i % 4u]);
      for (var j = RANK; j < select(0u, PITCH, row == RANK - 1u); j++) {
        y[(first + col) * PITCH + j] = f16(0.0);
      }
    }
#else
    y[(first + row) * PITCH + col] = f16(w[i / 4u][i % 4u]); // the padding of w is zeros
#endif
  }
}
