// x[m] += part of the embedding of token m, if it is of media: the VECS vectors from `first` on (deepstack).
// Grid (VECS / THREADS, tokens).
#param VECS // columns of x / 4
#param MEDIA_WIDTH // floats of an embedding
#param TOKENS // capacity of a sequence in `tokens`
#param FIRST_MEDIA_ID
#param THREADS

struct Params {
  first: u32, // float of an embedding; a multiple of 4
  stride: u32, // floats between rows of x
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> tokens: array<u32>; // (sequences, TOKENS)
@bind var<storage, read> media: array<vec4f>; // (n, MEDIA_WIDTH)
@bind var<storage, read_write> x: array<vec4f>;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= count() || id.x >= VECS || tokens[seq_of(m) * TOKENS + pos_of(m)] < FIRST_MEDIA_ID) {
    return;
  }
  x[m * (p.stride / 4u) + id.x] += media[m * (MEDIA_WIDTH / 4u) + p.first / 4u + id.x];
}
