// Functions of four floats, and of one.
#pragma once

#include "module.h"

INLINE v128_t splat(f32 x) { return wasm_f32x4_splat(x); }

// a * b + c: rounded once where the module has relaxed SIMD and the processor can, so that the modules' results differ.
INLINE v128_t madd(v128_t a, v128_t b, v128_t c) {
#ifdef __wasm_relaxed_simd__
  return wasm_f32x4_relaxed_madd(a, b, c);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
#endif
}

INLINE f32 sum4(v128_t x) {
  return (wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1)) +
         (wasm_f32x4_extract_lane(x, 2) + wasm_f32x4_extract_lane(x, 3));
}
INLINE f32 max4(v128_t x) {
  return MAX(MAX(wasm_f32x4_extract_lane(x, 0), wasm_f32x4_extract_lane(x, 1)),
             MAX(wasm_f32x4_extract_lane(x, 2), wasm_f32x4_extract_lane(x, 3)));
}

// e^x: 2^n times a polynomial of the remainder within ln(2) / 2. 0 below -87.3, infinite above 88.7.
INLINE v128_t exp4(v128_t x) {
  const v128_t low = wasm_f32x4_lt(x, splat(-87.33654f)), high = wasm_f32x4_gt(x, splat(88.72283f));
  x = wasm_f32x4_pmax(splat(-87.33654f), wasm_f32x4_pmin(splat(88.72283f), x));
  const v128_t n = wasm_f32x4_nearest(wasm_f32x4_mul(x, splat(1.44269504f)));
  v128_t r = wasm_f32x4_sub(x, wasm_f32x4_mul(n, splat(0.693359375f)));
  r = wasm_f32x4_add(r, wasm_f32x4_mul(n, splat(2.12194440e-4f)));
  v128_t p = splat(1.9875691500e-4f);
  p = madd(p, r, splat(1.3981999507e-3f));
  p = madd(p, r, splat(8.3334519073e-3f));
  p = madd(p, r, splat(4.1665795894e-2f));
  p = madd(p, r, splat(1.6666665459e-1f));
  p = madd(p, r, splat(5.0000001201e-1f));
  p = wasm_f32x4_add(madd(p, wasm_f32x4_mul(r, r), r), splat(1));
  // in two factors: 2^128 is no float
  const v128_t i = wasm_i32x4_trunc_sat_f32x4(n), half = wasm_i32x4_shr(i, 1), rest = wasm_i32x4_sub(i, half);
  const v128_t bias = wasm_i32x4_splat(127);
  p = wasm_f32x4_mul(p, wasm_i32x4_shl(wasm_i32x4_add(half, bias), 23));
  p = wasm_f32x4_mul(p, wasm_i32x4_shl(wasm_i32x4_add(rest, bias), 23));
  p = wasm_v128_bitselect(splat(0), p, low);
  return wasm_v128_bitselect(splat(__builtin_inff()), p, high);
}
INLINE f32 exp1(f32 x) { return wasm_f32x4_extract_lane(exp4(splat(x)), 0); }

INLINE v128_t sigmoid4(v128_t x) {
  return wasm_f32x4_div(splat(1), wasm_f32x4_add(splat(1), exp4(wasm_f32x4_neg(x))));
}

// tanh x = x times a polynomial of x^2 near 0, else 1 - 2 / (e^2x + 1).
INLINE v128_t tanh4(v128_t x) {
  const v128_t e = exp4(wasm_f32x4_add(x, x)), s = wasm_f32x4_mul(x, x);
  const v128_t far = wasm_f32x4_sub(splat(1), wasm_f32x4_div(splat(2), wasm_f32x4_add(e, splat(1))));
  v128_t p = splat(-5.70498872745e-3f);
  p = madd(p, s, splat(2.06390887954e-2f));
  p = madd(p, s, splat(-5.37397155531e-2f));
  p = madd(p, s, splat(1.33314422036e-1f));
  p = madd(p, s, splat(-3.33332819422e-1f));
  const v128_t near = madd(wasm_f32x4_mul(p, s), x, x);
  return wasm_v128_bitselect(near, far, wasm_f32x4_lt(wasm_f32x4_abs(x), splat(0.625f)));
}

// The natural logarithm of a positive number: of its power of two, plus 2 atanh((m - 1) / (m + 1)).
INLINE f64 log1(f64 x) {
  union {
    f64 value;
    u64 bits;
  } u = {x};
  if (x <= 0) return -__builtin_inf();
  i32 exponent = (i32)(u.bits >> 52) - 1023;
  if (exponent == -1023) { // a subnormal
    u.value = x * 0x1p54;
    exponent = (i32)(u.bits >> 52) - 1023 - 54;
  }
  u.bits = (u.bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  if (u.value > 1.4142135623730951) u.value *= 0.5, exponent++;
  const f64 t = (u.value - 1) / (u.value + 1), s = t * t;
  f64 sum = 0;
  for (i32 k = 21; k >= 1; k -= 2) sum = sum * s + 1.0 / k;
  return 2 * t * sum + exponent * 0.6931471805599453;
}

// e^x in double precision.
INLINE f64 exp_double(f64 x) {
  if (x < -708) return 0;
  if (x > 709) return __builtin_inf();
  const f64 n = __builtin_nearbyint(x * 1.4426950408889634), r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
  f64 p = 1;
  for (i32 k = 13; k >= 1; k--) p = p * r / k + 1;
  union {
    u64 bits;
    f64 value;
  } two = {(u64)(1023 + (i32)n) << 52};
  return p * two.value;
}

INLINE f32 softplus(f32 x) { return x > 20 ? x : (f32)log1(1.0 + exp_double(x)); }

// Four half floats, in the lower 16 bits of each lane, as floats.
INLINE v128_t halves4(v128_t h) {
  const v128_t magnitude = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x7fff)), 13);
  const v128_t sign = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x8000)), 16);
  const v128_t value = wasm_f32x4_mul(magnitude, wasm_i32x4_splat(0x77800000)); // 2^112
  // infinity and NaN
  const v128_t large = wasm_i32x4_gt(magnitude, wasm_i32x4_splat(0x0f7fffff));
  return wasm_v128_or(wasm_v128_or(value, sign), wasm_v128_and(large, wasm_i32x4_splat(0x7f800000)));
}
// The same of halves in memory, none of which is infinite.
INLINE v128_t finite_halves(const void *at) {
  const v128_t bits = wasm_v128_and(wasm_i32x4_shl(wasm_i32x4_load16x4(at), 13), wasm_i32x4_splat((i32)0x8fffe000));
  return wasm_f32x4_mul(bits, wasm_i32x4_splat(0x77800000));
}
INLINE f32 half(u16 h) { return wasm_f32x4_extract_lane(halves4(wasm_i32x4_splat(h)), 0); }

// A float rounded to the nearest half float, ties to even.
INLINE u16 to_half(f32 x) {
  union {
    f32 value;
    u32 bits;
  } u = {x}, scaled;
  const u32 sign = u.bits >> 16 & 0x8000;
  u.bits &= 0x7fffffff;
  if (u.bits >= 0x47800000) return sign | (u.bits > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (u.bits < 0x38800000) { // a subnormal half: adding 0.5 shifts the bits to where they belong and rounds
    scaled.value = u.value + 0.5f;
    return sign | (scaled.bits - 0x3f000000);
  }
  return sign | ((u.bits + 0xfff + (u.bits >> 13 & 1) - 0x38000000) >> 13);
}
