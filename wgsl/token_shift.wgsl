// y0[m] = x[m] + (x[m - 1] - x[m]) * f, column by column: a mixture of a token with the one before. OWN: f = factors +
// changes[m]. There may be PARTS of them, each with its own result. Grid (COLS / THREADS, tokens). The token before the
// batch is in the sequence's window; before a sequence's first token are zeros. WRITES: the thread of a run's first token,
// the only one that reads the window, also writes the run's last two tokens to it.
#param COLS
#param PARTS // at most 3
#param OWN
#param WRITES
#param WINDOWS // rows of a window
#param Y16 // 1: the results are f16
#if Y16
#param F16
alias Value = f16;
#else
alias Value = f32;
#endif
#param THREADS

struct Params {
  x_stride: u32,
  first: u32, // the first part, of those in `factors` and `changes`
  changes_stride: u32,
  window: u32, // the row of a window
  y_stride: u32,
}
#include "lib/halves.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> factors: array<f32>; // (parts, COLS)
#if OWN
@bind var<storage, read> changes: array<f32>; // (n, changes_stride): those of every part
#endif
@bind var<storage, read_write> windows: array<f32>; // (slots, 2, WINDOWS, COLS)
#for i in PARTS
@bind var<storage, read_write> y${i}: array<Value>; // (n, y_stride)
#endfor

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  let m = id.y;
  if (i >= COLS || m >= count()) {
    return;
  }
  let own = x[m * p.x_stride + i];
  var before = 0.0;
  if (begins_run(m)) {
    if (offset_of(m) > 0u) {
      before = windows[(half_after(pos_of(m) - 1u, seq_of(m)) * WINDOWS + p.window) * COLS + i];
    }
#if WRITES
    let end = run_end(m);
    for (var last = max(m + 2u, end) - 2u; last < end; last++) {
      windows[(half_after(pos_of(last), seq_of(last)) * WINDOWS + p.window) * COLS + i] = x[last * p.x_stride + i];
    }
#endif
  } else if (offset_of(m) > 0u) {
    before = x[(m - 1u) * p.x_stride + i];
  }
#for i in PARTS
  let at${i} = (p.first + ${i}u) * COLS + i;
  var f${i} = factors[at${i}];
#if OWN
  f${i} += changes[m * p.changes_stride + at${i}];
#endif
  y${i}[m * p.y_stride + i] = Value(own + (before - own) * f${i});
#endfor
}
