// Loads one head's new key and value of token m, rounded as the q8_0 cache holds them or will hold them.
// They share `partial`'s workgroup memory: less memory per workgroup means higher occupancy.
@bind var<storage, read> k_new: array<vec4f>; // (n, n_head_kv * HEAD_DIM)
@bind var<storage, read> v_new: array<vec4f>;
#include "lib/kv_group.wgsl"

fn newest_key(i: u32) -> vec4f {
  return partial[i];
}

fn newest_value(i: u32) -> vec4f {
  return partial[VECS + i];
}

fn fresh_load(head: u32, m: u32, t: u32) {
  for (var i = t; i < 2u * VECS; i += WG) {
    let key = i < VECS;
    let at = (m * p.n_head_kv + head) * VECS + i % VECS;
    var group: array<vec4f, 8>; // all eight loads in flight at once
    for (var j = 0u; j < 8u; j++) {
      if (key) {
        group[j] = k_new[at / 8u * 8u + j];
      } else {
        group[j] = v_new[at / 8u * 8u + j];
      }
    }
    var max_abs4 = vec4f(0);
    for (var j = 0u; j < 8u; j++) {
      max_abs4 = max(max_abs4, abs(group[j]));
    }
    let scale = scale_of(max_abs4);
    if (key) {
      partial[i] = (scale / 127.0) * bytes_vec(bytes_of(k_new[at], scale));
    } else {
      partial[i] = (scale / 127.0) * bytes_vec(bytes_of(v_new[at], scale));
    }
  }
}
