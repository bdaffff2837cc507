// The key and the value of the token itself, which no one has brought into the q8_0 cache yet, rounded as they will lie
// there: of one head, in workgroup memory.
@bind var<storage, read> k_new: array<vec4f>; // (1, n_head_kv * HEAD_DIM)
@bind var<storage, read> v_new: array<vec4f>;
#include "kv_group.wgsl"
var<workgroup> fresh_key: array<vec4f, VECS>;
var<workgroup> fresh_value: array<vec4f, VECS>;

fn fresh_load(head: u32, t: u32) {
  for (var i = t; i < 2u * VECS; i += WG) {
    let at = head * VECS + i % VECS;
    var group: array<vec4f, 8>;
    for (var j = 0u; j < 8u; j++) {
      if (i < VECS) {
        group[j] = k_new[at / 8u * 8u + j];
      } else {
        group[j] = v_new[at / 8u * 8u + j];
      }
    }
    let most = largest(group);
    if (i < VECS) {
      fresh_key[i] = (most / 127.0) * bytes_vec(bytes_of(k_new[at], most));
    } else {
      fresh_value[i % VECS] = (most / 127.0) * bytes_vec(bytes_of(v_new[at], most));
    }
  }
}
