// The key and the value of the token itself, which no one has brought into the q8_0 cache yet, rounded as they will lie
// there: of one head, in workgroup memory.
@bind var<storage, read> k_new: array<vec4f>; // (1, n_head_kv * HEAD_DIM)
@bind var<storage, read> v_new: array<vec4f>;
#include "kv_group.wgsl"
var<workgroup> fresh_key: array<vec4f, VECS>;
var<workgroup> fresh_value: array<vec4f, VECS>;

fn fresh_load(head: u32, t: u32) {
  for (var i = t; i < 2u * VECS; i += WG) {
    let key = i < VECS;
    let at = head * VECS + i % VECS;
    var most = vec4f(0);
    for (var j = at / 8u * 8u; j < at / 8u * 8u + 8u; j++) {
      if (key) {
        most = max(most, abs(k_new[j]));
      } else {
        most = max(most, abs(v_new[j]));
      }
    }
    let step = step_of(most);
    if (key) {
      fresh_key[i % VECS] = (step / 127.0) * bytes_vec(bytes_of(k_new[at], step));
    } else {
      fresh_value[i % VECS] = (step / 127.0) * bytes_vec(bytes_of(v_new[at], step));
    }
  }
}
