// Where quantize_rows.wgsl stores rows of x that are rounded to bytes, (n, COLS). For small batches, neighbouring threads
// multiply with neighbouring groups, or with pairs of them: what they load at a time is contiguous.
#param IN_ORDER // 1: for matmul_int8.wgsl, whose threads load all of a few groups: a group's halves follow each other
const XQ_GROUPS = COLS / 32u; // of a row
#if IN_ORDER

fn xq_at(m: u32, g: u32, half: u32) -> u32 {
  return 2u * (m * XQ_GROUPS + g) + half;
}

fn xq_scale_at(m: u32, g: u32) -> u32 {
  return m * XQ_GROUPS + g;
}
#else
const XQ_PAIR = 2u - XQ_GROUPS % 2u; // groups of a unit; 1 if a row has an odd number of groups
const XQ_UNITS = XQ_GROUPS / XQ_PAIR;

// Index of one half (16 bytes) of group g of row m.
fn xq_at(m: u32, g: u32, half: u32) -> u32 {
  return m * 2u * XQ_GROUPS + (g % XQ_PAIR * 2u + half) * XQ_UNITS + g / XQ_PAIR;
}

fn xq_scale_at(m: u32, g: u32) -> u32 {
  return m * XQ_GROUPS + g % XQ_PAIR * XQ_UNITS + g / XQ_PAIR;
}
#endif
