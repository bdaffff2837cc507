// Pillow's resampler in integers (py_engine/media/resize.js): a target's sums of weighted bytes, rounded to bytes again.
//
// A weight has 22 fractional bits, more than a dot product of 16-bit lanes takes, so it comes as two: weight >> LOW, and
// the LOW bits below. The two sums together are the exact one, modulo 2^32. Taps are in pairs: the high parts of both, then
// the low parts; the last one of an odd number is followed by a weight of 0.
//
// tools/wasm.py compiles this file, and writes resize_module.js.

#include <stdint.h>
#include <wasm_simd128.h>

enum { BITS = 22, LOW = 11, PAIR = 4 };

#define ADD(sum, values, weights) sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(values, weights))

typedef struct {
  int32_t count, most;     // targets; pairs of taps in a row of the weights
  const int32_t *first;    // (count): a target's first source
  const int32_t *pairs;    // (count)
  const int16_t *weights;  // (count, most, PAIR)
} Taps;

static v128_t rounded(v128_t high, v128_t low) {
  v128_t sum = wasm_i32x4_add(wasm_i32x4_shl(high, LOW), low);
  return wasm_i32x4_shr(wasm_i32x4_add(sum, wasm_i32x4_splat(1 << (BITS - 1))), BITS);
}

// Makes `n` rows of pixels out of rows of other pixels. Reads and writes a few bytes more than these.
__attribute__((export_name("columns"))) void columns(const uint8_t *from, int32_t from_stride, int32_t n, uint8_t *to,
                                                     int32_t to_stride, const Taps *taps) {
  for (; n > 0; n--, from += from_stride, to += to_stride) {
    for (int32_t x = 0; x < taps->count; x++) {
      const uint8_t *pixels = from + 3 * taps->first[x];
      const int16_t *weights = taps->weights + x * taps->most * PAIR;
      v128_t high = wasm_i32x4_splat(0), low = high;
      for (int32_t k = taps->pairs[x]; k > 0; k--, pixels += 6, weights += PAIR) {
        // The two pixels' red, green and blue; byte 15 is 0.
        v128_t two = wasm_v128_load64_zero(pixels);
        two = wasm_i8x16_shuffle(two, two, 0, 15, 3, 15, 1, 15, 4, 15, 2, 15, 5, 15, 15, 15, 15, 15);
        ADD(high, two, wasm_v128_load32_splat(weights));
        ADD(low, two, wasm_v128_load32_splat(weights + 2));
      }
      v128_t pixel = rounded(high, low);
      pixel = wasm_i16x8_narrow_i32x4(pixel, pixel);
      wasm_v128_store32_lane(to + 3 * x, wasm_u8x16_narrow_i16x8(pixel, pixel), 0);
    }
  }
}

// Makes rows out of other rows of `stride` bytes, a multiple of 16. May read one row more than these.
__attribute__((export_name("rows"))) void rows(const uint8_t *from, int32_t stride, uint8_t *to, const Taps *taps) {
  for (int32_t y = 0; y < taps->count; y++, to += stride) {
    for (int32_t x = 0; x < stride; x += 16) {
      const uint8_t *bytes = from + taps->first[y] * stride + x;
      const int16_t *weights = taps->weights + y * taps->most * PAIR;
      v128_t h0 = wasm_i32x4_splat(0), h1 = h0, h2 = h0, h3 = h0, l0 = h0, l1 = h0, l2 = h0, l3 = h0;
      for (int32_t k = taps->pairs[y]; k > 0; k--, bytes += 2 * stride, weights += PAIR) {
        v128_t high = wasm_v128_load32_splat(weights), low = wasm_v128_load32_splat(weights + 2);
        v128_t a = wasm_v128_load(bytes), b = wasm_v128_load(bytes + stride);
        v128_t left = wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        v128_t right = wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        v128_t v0 = wasm_u16x8_extend_low_u8x16(left), v1 = wasm_u16x8_extend_high_u8x16(left);
        v128_t v2 = wasm_u16x8_extend_low_u8x16(right), v3 = wasm_u16x8_extend_high_u8x16(right);
        ADD(h0, v0, high), ADD(h1, v1, high), ADD(h2, v2, high), ADD(h3, v3, high);
        ADD(l0, v0, low), ADD(l1, v1, low), ADD(l2, v2, low), ADD(l3, v3, low);
      }
      v128_t low_half = wasm_i16x8_narrow_i32x4(rounded(h0, l0), rounded(h1, l1));
      v128_t high_half = wasm_i16x8_narrow_i32x4(rounded(h2, l2), rounded(h3, l3));
      wasm_v128_store(to + x, wasm_u8x16_narrow_i16x8(low_half, high_half));
    }
  }
}
