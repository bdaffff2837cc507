// Each of the token's residual streams += its weight * x[m]. Grid (COLS / THREADS, tokens).
#param STREAMS
#param COLS // columns of a stream
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
#include "lib/stream_weight.wgsl"
@bind var<storage, read> x: array<f32>; // (n, COLS)
@bind var<storage, read_write> streams: array<f32>; // (n, STREAMS, COLS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= COLS) {
    return;
  }
  let v = x[m * p.stride + id.x];
  for (var s = 0u; s < STREAMS; s++) {
    streams[m * p.streams_stride + s * COLS + id.x] += stream_weight(m, s) * v;
  }
}
