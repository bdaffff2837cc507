// Rounds a group of 32 of a token's f32 keys or values to q8_0 and stores it in the cache. One thread a group.
#param COLS // values of a row: n_head_kv * HEAD_DIM
@bind var<storage, read> k_new: array<vec4f>; // (n, COLS)
@bind var<storage, read> v_new: array<vec4f>;
@bind var<storage, read_write> k_cache: array<u32>; // per page: bytes of PAGE rows, then a scale per group
@bind var<storage, read_write> v_cache: array<u32>;
#include "lib/pages.wgsl"
#include "lib/kv_group.wgsl"
const GROUPS = COLS / 32u; // groups of a row

// Stores group i of token m: i < GROUPS of its keys, i >= GROUPS of its values.
fn kv_store(i: u32, m: u32) {
  let key = i < GROUPS;
  let g = i % GROUPS;
  let page = page_of(pos_of(m), seq_of(m));
  let row = pos_of(m) % PAGE;
  var values: array<vec4f, 8>;
  var max_abs4 = vec4f(0);
  for (var j = 0u; j < 8u; j++) {
    let at = m * (COLS / 4u) + 8u * g + j;
    if (key) {
      values[j] = k_new[at];
    } else {
      values[j] = v_new[at];
    }
    max_abs4 = max(max_abs4, abs(values[j]));
  }
  let scale = scale_of(max_abs4);
  let first = page * PAGE * (COLS / 4u + GROUPS); // word of the page
  for (var j = 0u; j < 8u; j++) {
    let at = first + row * (COLS / 4u) + 8u * g + j;
    if (key) {
      k_cache[at] = bytes_of(values[j], scale);
    } else {
      v_cache[at] = bytes_of(values[j], scale);
    }
  }
  let at = first + PAGE * (COLS / 4u) + row * GROUPS + g;
  if (key) {
    k_cache[at] = bitcast<u32>(scale);
  } else {
    v_cache[at] = bitcast<u32>(scale);
  }
}
