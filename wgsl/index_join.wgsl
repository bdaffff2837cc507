// The index of sparse attention: joins the keys of POOL positions, weighted by a softmax over their gates, column by column,
// where the last one is the batch's. Its row of the cache has the result after its own key and gates. Grid (tokens).
#param SIZE // of a key
#param POOL // positions whose keys are joined
#param ROW // columns of a row of the cache
#param WG
#include "lib/sequence.wgsl"
@bind var<storage, read> gate_bias: array<f32>; // (POOL, SIZE): added to the gates of each
@bind var<storage, read_write> k_cache: array<f32>; // (rows, ROW)
#include "lib/pages.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count() || (offset_of(m) + 1u) % POOL != 0u) {
    return;
  }
  let seq = seq_of(m);
  let last = pos_of(m);
  for (var i = t; i < SIZE; i += WG) {
    var top = -1e30;
    var total = 0.0;
    var sum = 0.0;
    for (var r = 0u; r < POOL; r++) {
      let s = last + 1u - POOL + r;
      let at = row_in(page_of(s, seq), s) * ROW + i;
      let gate = k_cache[at + SIZE] + gate_bias[r * SIZE + i];
      let new_top = max(top, gate);
      let e = exp(gate - new_top);
      let rescale = exp(top - new_top);
      total = total * rescale + e;
      sum = sum * rescale + e * k_cache[at];
      top = new_top;
    }
    k_cache[row_in(page_of(last, seq), last) * ROW + 2u * SIZE + i] = sum / total;
  }
}
