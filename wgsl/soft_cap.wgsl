// y *= scale; then, where there is a cap, y = cap * tanh(y / cap). A row of COLS a token.
#param COLS
#param CAP

struct Params {
  scale: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, COLS)
#include "lib/soft_cap.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < COLS) {
    let at = id.y * COLS + id.x;
#if CAP
    y[at] = capped(y[at] * p.scale, CAP);
#else
    y[at] *= p.scale;
#endif
  }
}
