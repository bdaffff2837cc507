// y[m] *= scale; CAP: y[m] = CAP * tanh(scale * y[m] / CAP). Grid (COLS / WG, tokens).
#param COLS // columns of y
#param CAP // 0: none
#param WG

struct Params {
  scale: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, COLS)
#include "lib/soft_cap.wgsl"

@compute @workgroup_size(WG)
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
