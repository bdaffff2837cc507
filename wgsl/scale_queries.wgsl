// y[m, i] *= 1 + scale * log(1 + floor((position + first) / length)) for the first COLS columns: queries whose scores would
// spread less over a longer context. Grid (COLS / THREADS, tokens).
#param COLS
#param THREADS

struct Params {
  scale: f32,
  length: u32, // positions
  first: u32, // added to positions
  stride: u32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, stride)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < count() && id.x < COLS) {
    let lengths = (offset_of(id.y) + p.first) / p.length;
    y[id.y * p.stride + id.x] *= 1.0 + p.scale * log(1.0 + f32(lengths));
  }
}
