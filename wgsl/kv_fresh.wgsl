// Keys and values of the token itself, which no one has brought into the q8_0 cache yet, rounded as they will lie there.
@bind var<storage, read> k_new: array<vec4f>; // (1, n_head_kv * HEAD_DIM)
@bind var<storage, read> v_new: array<vec4f>;
#include "kv_group.wgsl"

fn fresh_key(at: u32) -> vec4f {
  var group: array<vec4f, 8>;
  for (var i = 0u; i < 8u; i++) {
    group[i] = k_new[at / 8u * 8u + i];
  }
  let most = largest(group);
  return (most / 127.0) * bytes_vec(bytes_of(k_new[at], most));
}

fn fresh_value(at: u32) -> vec4f {
  var group: array<vec4f, 8>;
  for (var i = 0u; i < 8u; i++) {
    group[i] = v_new[at / 8u * 8u + i];
  }
  let most = largest(group);
  return (most / 127.0) * bytes_vec(bytes_of(v_new[at], most));
}
