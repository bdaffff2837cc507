// Beside a product, for which h is known: added = what adapters add to its rows (lib/low_rank.wgsl or
// lib/low_rank_equal.wgsl, included as _L). The next dispatch adds both. The last workgroups compute it, as many rows of a
// token as they have threads: those of the product begin before them, which takes less time.
@bind var<storage, read_write> added: array<f32>; // (n, p.y_stride)

// `index`: of the workgroup among those of its slice, whose first token is m0.
fn low_rank_rows(index: u32, m0: u32, t: u32) {
  let m = m0 + index % TOKENS;
  if (m >= count()) { // uniform
    return;
  }
  low_rank_load_L(m, t);
  let row = index / TOKENS * WG + t;
  if (row < p.y_stride) {
    added[m * p.y_stride + row] = low_rank_row_L(m, row);
  }
}
