// y[m] = the weighted sum of the token's residual streams. Grid (COLS / THREADS, tokens).
#param STREAMS
#param COLS // columns of a stream
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
#include "lib/stream_weight.wgsl"
@bind var<storage, read> streams: array<f32>; // (n, STREAMS, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, COLS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= COLS) {
    return;
  }
  var sum = 0.0;
  for (var s = 0u; s < STREAMS; s++) {
    sum += stream_weight(m, s) * streams[m * p.streams_stride + s * COLS + id.x];
  }
  y[m * p.stride + id.x] = sum;
}
