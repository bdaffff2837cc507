#include "formats.h"

const Format formats[FORMATS] = {FORMAT_TABLE};

// The codes of column `c` of a group, of four rows: i32 each.
static v128_t codes4(const Format *f, const u8 *group, u32 c) {
  const u32 nibbles = f->kind <= SIGNED_CODES, upper = nibbles && c >= 16, i = nibbles ? c % 16 : c;
  i32 found[4];
  for (u32 r = 0; r < 4; r++) {
    u32 code = group[16 * (i / 4) + 4 * r + i % 4];
    if (nibbles) code = upper ? code >> 4 : code & 15;
    if (f->kind == CODES || f->kind == SIGNED_CODES) code = f->table[code];
    const u32 is_signed = f->kind == SIGNED_CODES || f->kind == SIGNED_BYTES;
    found[r] = is_signed ? (i8)code : (i32)code - f->offset;
  }
  return wasm_v128_load(found);
}

void unpack(const Format *f, const u8 *unit, f32 *to) {
  if (f->kind == FLOATS) {
    const u32 size = f->bytes / f->values / 4;
    for (u32 k = 0; k < f->values; k++, unit += 4 * size) {
      v128_t w = wasm_v128_load64_zero(unit);
      if (size == 4) w = wasm_v128_load(unit);
      else if (f->offset) w = wasm_i32x4_shl(wasm_u32x4_extend_low_u16x8(w), 16); // bf16
      else w = finite_halves(unit);
      wasm_v128_store(to + 4 * k, w);
    }
    return;
  }
  const u8 *body = unit + body_at(f->scales, f->minimum);
  for (u32 g = 0; g < f->values / 32; g++, body += group_bytes(f->kind)) {
    for (u32 h = 0; h < 2; h++) {
      const v128_t d = scale4(unit, f->scales, f->minimum, g, h);
      const v128_t m = f->minimum ? minimum4(unit, f->scales, g, h) : splat(0);
      for (u32 c = 16 * h; c < 16 * h + 16; c++) {
        const v128_t value = wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(codes4(f, body, c)));
        wasm_v128_store(to + 4 * (32 * g + c), wasm_f32x4_sub(value, m));
      }
    }
  }
}
