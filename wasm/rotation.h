// Rotation of pairs of numbers by exact angles; rows of caches of f16 or f32, and places of compressed keys.
#pragma once

#include "ops.h"

// Where the compressed key is whose last position is `pos`: the index of its first value (wgsl/lib/compressed_keys.wgsl).
#define KEY_AT(r, seq, pos)                                                                                            \
  ((size_t)tables((r)->state)[(r)->key_table + (seq) * (r)->pages + (pos) / (r)->page] * (r)->page * (r)->key_width +  \
   (pos) % (r)->page / (r)->step * (r)->size)

// sin and cos of an angle, which is a turn's fraction in units of 2^-32.
static inline void sine_cosine(u32 turns, f32 *sine, f32 *cosine) {
  // the nearest quarter turn, and an angle within an eighth of a turn of it
  const u32 quarter = turns + 0x20000000u;
  const f32 a = (f32)(i32)(turns - (quarter & 0xc0000000u)) * 1.4629180792671596e-9f, s = a * a;
  const f32 sin_a = a + a * s * (-1.6666654611e-1f + s * (8.3321608736e-3f - s * 1.9515295891e-4f));
  const f32 cos_a = 1 - s / 2 + s * s * (4.166664568298827e-2f + s * (-1.388731625493765e-3f + s * 2.443315711809948e-5f));
  switch (quarter >> 30) {
  case 0: *sine = sin_a, *cosine = cos_a; break;
  case 1: *sine = cos_a, *cosine = -sin_a; break;
  case 2: *sine = -sin_a, *cosine = -cos_a; break;
  default: *sine = -cos_a, *cosine = sin_a;
  }
}

// Rotate heads of x by cos and sin (rope_dim / 2 each), into y.
static inline void rotate(const f32 *x, f32 *y, u32 cols, u32 head_dim, u32 dim, u32 neox, const f32 *cosine, const f32 *sine) {
  for (u32 head = 0; head < cols; head += head_dim, x += head_dim, y += head_dim) {
    for (u32 i = 0; i < dim / 2; i++) {
      // of NEOX 1, the block is all dimensions; of 2, a half of them
      const u32 half = dim / 2 / MAX(neox, 1), a = neox ? i / half * 2 * half + i % half : 2 * i, b = a + (neox ? half : 1);
      const f32 first = x[a], second = x[b];
      y[a] = first * cosine[i] - second * sine[i];
      y[b] = first * sine[i] + second * cosine[i];
    }
    if (y != x)
      for (u32 i = dim; i < head_dim; i++) y[i] = x[i];
  }
}

static inline void store_row(u32 cache, u32 halves, size_t at, const f32 *x, u32 cols) {
  if (!halves) {
    memcpy(AT(f32, cache) + at, x, 4 * cols);
    return;
  }
  for (u32 k = 0; k < cols; k++) AT(u16, cache)[at + k] = to_half(x[k]);
}

// The scaled sines and cosines of `pairs` pairs at a position.
static inline void angles(const u32 *freqs, u32 pairs, u32 at, f32 scale, f32 *sine, f32 *cosine) {
  for (u32 i = 0; i < pairs; i++) {
    sine_cosine(at * freqs[i], sine + i, cosine + i);
    sine[i] *= scale, cosine[i] *= scale;
  }
}
