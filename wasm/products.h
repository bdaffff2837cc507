// Products of rows of x with the rows of a matrix.
#pragma once

#include "formats.h"

#define TILE 4 // tokens that share a panel's unpacked values

// A row of x rounded to bytes: a scale per group of 32, the sums of its levels, the levels as bytes and as i16.
typedef struct {
  const f32 *d;    // (groups)
  const f32 *sums; // (groups, 2): of the group, and of its first half
  const i8 *q;     // (cols)
  const i16 *wide; // (cols)
} Rounded;

INLINE size_t rounded_bytes(u32 cols) { return (size_t)cols / 32 * ROUNDED_GROUP_BYTES; }
INLINE Rounded rounded_row(const u8 *at, u32 cols) {
  const u32 groups = cols / 32;
  const u8 *q = at + 12 * groups;
  return (Rounded){(const f32 *)at, (const f32 *)(at + 4 * groups), (const i8 *)q, (const i16 *)(q + cols)};
}

// The sums of a group's products, by row. With relaxed SIMD, those of u7 values are in `a`; PAIRS, for x86, adds the
// products of pairs of columns in the 16-bit lanes of `b` first. Else a and b have half the columns each.
typedef struct {
  v128_t a, b;
} Sums;

INLINE void dot_u7(Sums *s, v128_t w, const Rounded *x, u32 c) {
#if defined PAIRS
  // one instruction on x86, whose second operand is the one with a sign: it must be within 0..127 here
  s->b = wasm_i16x8_add(s->b, wasm_i16x8_relaxed_dot_i8x16_i7x16(wasm_v128_load32_splat(x->q + c), w));
#elif defined __wasm_relaxed_simd__
  s->a = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat(x->q + c), w, s->a); // one on ARM
#else
  const v128_t v = wasm_v128_load64_splat(x->wide + c);
  s->a = wasm_i32x4_add(s->a, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(w), v));
  s->b = wasm_i32x4_add(s->b, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(w), v));
#endif
}

// x as products read it: rows of floats, or rounded rows.
typedef struct {
  const u8 *at;
  size_t row; // bytes
  u32 exact;  // floats
} Input;

INLINE const u8 *input_row(const Input *x, u32 m) { return x->at + x->row * m; }

// to[t] = panel * x[t] for four rows of the matrix and TILE rows of x, of which `count` differ.
void panel_product(const Format *f, const u8 *panel, u32 cols, const u8 *const x[TILE], u32 count, u32 exact,
                   v128_t to[TILE], f32 *scratch);
