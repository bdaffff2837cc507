// The key and the value of the token itself, which no one has brought into the q8_0 cache yet, rounded as they will lie
// there: of one head, where `partial` will be, since what a workgroup has of memory decides how many run at once.
@bind var<storage, read> k_new: array<vec4f>; // (1, n_head_kv * HEAD_DIM)
@bind var<storage, read> v_new: array<vec4f>;
#include "lib/kv_group.wgsl"

fn fresh_load(head: u32, t: u32) {
  for (var i = t; i < 2u * VECS; i += WG) {
    let key = i < VECS;
    let at = head * VECS + i % VECS;
    var group: array<vec4f, 8>; // all of it on its way at once
    for (var j = 0u; j < 8u; j++) {
      if (key) {
        group[j] = k_new[at / 8u * 8u + j];
      } else {
        group[j] = v_new[at / 8u * 8u + j];
      }
    }
    var most = vec4f(0);
    for (var j = 0u; j < 8u; j++) {
      most = max(most, abs(group[j]));
    }
    let step = step_of(most);
    if (key) {
      partial[i] = (step / 127.0) * bytes_vec(bytes_of(k_new[at], step));
    } else {
      partial[i] = (step / 127.0) * bytes_vec(bytes_of(v_new[at], step));
    }
  }
}
