// From a batch's keys and values in f32 to a q8_0 cache: a thread a group of 32, which becomes 32 signed bytes and the
// largest of their sizes. Grid (groups of a row of keys, and of values; tokens).
#param COLS // of a row
#param KV_ROWS // of a sequence
#param RING

struct Params {
  groups: u32, // of a row
}
#include "sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> k: array<vec4f>; // (n, COLS)
@bind var<storage, read> v: array<vec4f>;
@bind var<storage, read_write> k_cache: array<u32>; // of each sequence: bytes of KV_ROWS rows, then the steps of their groups
@bind var<storage, read_write> v_cache: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= count() || id.x >= 2u * p.groups) {
    return;
  }
  let key = id.x < p.groups;
  let g = id.x % p.groups;
  var row = pos_of(m);
#if RING
  row %= RING;
#endif
  var values = array<vec4f, 8>();
  var most = 0.0;
  for (var i = 0u; i < 8u; i++) {
    let at = m * (COLS / 4u) + 8u * g + i;
    if (key) {
      values[i] = k[at];
    } else {
      values[i] = v[at];
    }
    let size = abs(values[i]);
    most = max(most, max(max(size.x, size.y), max(size.z, size.w)));
  }
  let first = seq_of(m) * KV_ROWS * (COLS / 4u + p.groups); // the sequence's
  let grow = select(0.0, 1.0 / most, most > 0.0);
  let step = bitcast<u32>(most);
  for (var i = 0u; i < 8u; i++) {
    let word = pack4x8snorm(values[i] * grow);
    let at = first + row * (COLS / 4u) + 8u * g + i;
    if (key) {
      k_cache[at] = word;
    } else {
      v_cache[at] = word;
    }
  }
  let at = first + KV_ROWS * (COLS / 4u) + row * p.groups + g;
  if (key) {
    k_cache[at] = step;
  } else {
    v_cache[at] = step;
  }
}
