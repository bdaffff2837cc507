// How matrices lie in memory: panels of four rows, so that one vector holds the same columns of four rows, and products
// need no sums across a vector's lanes. pack.c makes them from the blocks of a GGUF file at load.
//
// A panel is a run of units, each with `values` columns of four rows: first the scales, then the values. Values come in
// groups of 32 columns. In vector i of a group, byte 4 * row + j belongs to column 4 * i + j; of nibbles, the lower
// belong to columns 0 to 15 and the upper to 16 to 31. A value stands for scale * (code - offset) - minimum.
#pragma once

#include "math.h"

enum { NIBBLES, CODES, SIGNED_CODES, BYTES, SIGNED_BYTES, FLOATS }; // Format.kind
enum { HALF_32, HALF_16, FLOAT_32, LEVELS_32, LEVELS_16, NO_SCALE }; // Format.scales

typedef struct {
  u8 kind;    // NIBBLES: codes 0..15. CODES: indices of `table`, 0..127 there. BYTES: 0..127
  u8 scales;  // a half or a float for 32 columns; halves for 16; or a float for 256, times 8 bits for 32 or for 16
  u8 minimum; // whether there are minima, stored like scales
  u8 offset;
  u16 values, bytes;           // of a unit
  u16 raw_values, raw_bytes;   // of a block in the file
  u8 table[16];
} Format;

extern const Format formats[FORMATS]; // by GGUF's number of the type

INLINE size_t panel_bytes(const Format *f, u32 cols) { return (size_t)(cols / f->values) * f->bytes; }

// Where the parts of a unit begin.
INLINE u32 minimum_at(u32 scales) { return scales == HALF_32 ? 8 : 16; }
INLINE u32 levels_at(u32 minimum) { return minimum ? 32 : 16; }
INLINE u32 level_bytes(u32 scales) { return scales == LEVELS_32 ? 32 : scales == LEVELS_16 ? 64 : 0; }
INLINE u32 body_at(u32 scales, u32 minimum) {
  const u32 d = scales == HALF_32 ? 8 : 16;
  return (d + level_bytes(scales)) * (minimum ? 2 : 1);
}
INLINE u32 group_bytes(u32 kind) { return kind <= SIGNED_CODES ? 64 : 128; }

// The scales of four rows: of the group `g` of a unit, of its half `h` where scales are for 16 columns.
INLINE v128_t level4(const u8 *at, u32 is_signed) {
  const v128_t bytes = wasm_v128_load32_zero(at);
  if (is_signed) return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(bytes)));
  return wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes)));
}
INLINE v128_t scale4(const u8 *unit, u32 scales, u32 minimum, u32 g, u32 h) {
  if (scales == HALF_32) return finite_halves(unit);
  if (scales == HALF_16) return finite_halves(unit + 8 * h);
  const v128_t d = wasm_v128_load(unit);
  if (scales == FLOAT_32) return d;
  const u32 i = scales == LEVELS_16 ? 2 * g + h : g;
  return wasm_f32x4_mul(d, level4(unit + levels_at(minimum) + 4 * i, 1));
}
INLINE v128_t minimum4(const u8 *unit, u32 scales, u32 g, u32 h) {
  if (scales == HALF_32) return finite_halves(unit + 8);
  const u32 i = scales == LEVELS_16 ? 2 * g + h : g;
  return wasm_f32x4_mul(wasm_v128_load(unit + 16), level4(unit + 32 + level_bytes(scales) + 4 * i, 0));
}

// Dequantise a unit to floats (values, 4 rows).
void unpack(const Format *f, const u8 *unit, f32 *to);
