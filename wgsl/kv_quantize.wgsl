// From a batch's keys and values in f32 to a q8_0 cache. Grid (groups of a row of keys, and of values; tokens).
struct Params {
  groups: u32, // of a row
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
#include "lib/kv_store.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < count() && id.x < 2u * p.groups) {
    kv_store(id.x, id.y);
  }
}
