// IQ3_S: a group has eight grid indices (four elements each), a byte each; a byte with the ninth bits of the indices; four
// bytes of signs; a scale of four bits. Code c is the value 2 c + 1.
@bind var<storage, read> w_qs: array<u32>; // 27 per block: indices (16), ninth bits (2), signs (8), scales (1)
const GRID = 512u;
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let at = block * 27u;
  let sub = g % 8u;
  let ninth = w_qs[at + 16u + sub / 4u] >> (8u * (sub & 3u));
  let signs = w_qs[at + 18u + sub];
  let d = grid_float(GRID + block) * f32(1u + 2u * ((w_qs[at + 26u] >> (4u * sub)) & 15u));
  var q: array<u32, 8>;
  for (var i = 0u; i < 8u; i++) {
    let index = ((w_qs[at + 2u * sub + i / 4u] >> (8u * (i & 3u))) & 0xffu) | (((ninth >> i) & 1u) << 8u);
    q[i] = grid_signed(2u * spread_nibbles(grid_half(index)) + 0x01010101u, signs >> (4u * i));
  }
  return grid_group(q, d, d, 0.0);
}
