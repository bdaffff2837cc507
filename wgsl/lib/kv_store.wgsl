// A group of 32 of a token's keys or values, in f32, into a q8_0 cache, by one thread.
#param COLS // of a row
#param KV_ROWS // of a sequence
#param RING // rows of a layer that keeps only its window; 0: a row for every position
@bind var<storage, read> k_new: array<vec4f>; // (n, COLS)
@bind var<storage, read> v_new: array<vec4f>;
@bind var<storage, read_write> k_cache: array<u32>; // of each sequence: bytes of KV_ROWS rows, then the steps of their groups
@bind var<storage, read_write> v_cache: array<u32>;
#include "lib/kv_group.wgsl"
const GROUPS = COLS / 32u; // of a row

// Group i of token m: those of its keys, then those of its values.
fn kv_store(i: u32, m: u32) {
  let key = i < GROUPS;
  let g = i % GROUPS;
  var row = pos_of(m);
#if RING
  row %= RING;
#endif
  var values: array<vec4f, 8>;
  var most = vec4f(0);
  for (var j = 0u; j < 8u; j++) {
    let at = m * (COLS / 4u) + 8u * g + j;
    if (key) {
      values[j] = k_new[at];
    } else {
      values[j] = v_new[at];
    }
    most = max(most, abs(values[j]));
  }
  let step = step_of(most);
  let first = seq_of(m) * KV_ROWS * (COLS / 4u + GROUPS); // the sequence's
  for (var j = 0u; j < 8u; j++) {
    let at = first + row * (COLS / 4u) + 8u * g + j;
    if (key) {
      k_cache[at] = bytes_of(values[j], step);
    } else {
      v_cache[at] = bytes_of(values[j], step);
    }
  }
  let at = first + KV_ROWS * (COLS / 4u) + row * GROUPS + g;
  if (key) {
    k_cache[at] = bitcast<u32>(step);
  } else {
    v_cache[at] = bitcast<u32>(step);
  }
}
