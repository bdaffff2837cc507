// All ops, and what several of them need.
#pragma once

#include "math.h"

OPS(OP)

// 1 / rms of a row.
INLINE f32 inverse_rms(const f32 *x, u32 cols, f32 eps) {
  v128_t a = splat(0), b = splat(0);
  u32 k = 0;
  for (; k + 8 <= cols; k += 8) {
    const v128_t v = wasm_v128_load(x + k), w = wasm_v128_load(x + k + 4);
    a = madd(v, v, a), b = madd(w, w, b);
  }
  f32 sum = sum4(wasm_f32x4_add(a, b));
  for (; k < cols; k++) sum += x[k] * x[k];
  return 1 / __builtin_sqrtf(sum / cols + eps);
}

// One token of an op that works row by row.
#define EACH_ROW(m, rows)                                                                                              \
  for (u32 m = part_begin(rows, chunk, chunks); m < part_begin(rows, chunk + 1, chunks); m++)
