// y[m] += what adapters add to a product (lib/low_rank.wgsl, lib/low_rank_equal.wgsl). An entry that no token of a workgroup
// uses costs nothing.
// GATED: x has the product, gate's rows and then up's, and y[m, r] = activation(gate + what adapters add) * (up + what they
// add). Grid (rows / THREADS, tokens / TM).
#param GATED
#if GATED
#param ACTIVATION // see activation.wgsl
#param Y16 // 1: y is f16
#endif

struct Params {
  first: u32, // the first row of the result that an entry has
  rows: u32, // rows from there on, to the last one
  y_stride: u32, // floats between tokens
  h_stride: u32,
#if GATED
  x_stride: u32,
#endif
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
#param ADDS // "low_rank", or "low_rank_equal" for one token
#param TM // tokens of a workgroup
#param THREADS
#include "lib/${ADDS}.wgsl"
#if GATED
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#include "lib/activation.wgsl"
#if Y16
#param F16
alias Value = f16;
#else
alias Value = f32;
#endif
@bind var<storage, read_write> y: array<Value>; // (n, y_stride)
#else
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m0 = wid.y * TM;
  let row = wid.x * THREADS + t;
  let column = p.first + min(row, p.rows - 1u);
  // Loads that do not depend on each other come first: most of this kernel's time is their latency.
#for k in TM
#if GATED
  let before0_${k} = x[(m0 + ${k}u) * p.x_stride + column];
  let before1_${k} = x[(m0 + ${k}u) * p.x_stride + p.rows + column];
#else
  let before0_${k} = y[(m0 + ${k}u) * p.y_stride + column];
#endif
#endfor
  low_rank_load(m0, t);
  if (row >= p.rows) {
    return;
  }
#if ADDS == "low_rank_equal"
#for part in 1 + GATED
  let sum${part}_0 = low_rank_row(m0, column + ${part}u * p.rows);
#endfor
#else
#for part in 1 + GATED
#for k in TM
  var sum${part}_${k} = 0.0;
#endfor
  for (var e = 0u; e < ENTRIES; e++) {
    let entry = entry_at(e);
    let at = column + ${part}u * p.rows - entry.y; // wraps around below the entry's first row
    if (used[e] == 0u || at >= entry.rows) {
      continue;
    }
    for (var g = 0u; g < W_GROUPS; g++) {
      let w = w_group(entry.b + at, g);
#for k in TM
      {
        let x0 = (${k}u * ENTRIES + e) * SIZE + g * 8u;
        var found = 0.0;
#for i in 8 if COLS > 28 else (COLS + 3) // 4
        found += dot(w[${i}], scaled[x0 + ${i}u]);
#endfor
        sum${part}_${k} += found;
      }
#endfor
    }
  }
#endfor
#endif
#for k in TM
  if (is_row(m0 + ${k}u)) {
#if GATED
    y[(m0 + ${k}u) * p.y_stride + column] = Value(gated(before0_${k} + sum0_${k}, before1_${k} + sum1_${k}));
#else
    y[(m0 + ${k}u) * p.y_stride + column] = before0_${k} + sum0_${k};
#endif
  }
#endfor
}
