// Rounds a batch's f32 keys and values to q8_0 and stores them in the cache. Grid (2 * groups of a row / THREADS, tokens).
#param THREADS

struct Params {
  groups: u32, // groups of 32 in a row of keys
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
#include "lib/kv_store.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < count() && id.x < 2u * p.groups) {
    kv_store(id.x, id.y);
  }
}
