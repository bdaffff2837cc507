// Packs rows of a GGUF file into panels. `decode` reads one block; `place` writes it as one row of a unit.
//
// The blocks of all types are described in wgsl/quants/. Grid types need the patterns of their grid, 16 bits each.
#include "formats.h"

// Unlike products, this is written to be small rather than fast: it runs once per row.
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

typedef struct {
  u8 codes[256];
  f32 d, dmin; // d and minimum of a unit of 256 columns; d of FLOAT_32
  u16 half, half_min; // the same as in the file, of HALF_32
  u16 halves[2];      // of HALF_16
  i8 levels[16];
  u8 minima[16];
} Block;

INLINE u32 read16(const u8 *at) { return at[0] | at[1] << 8; }
INLINE u32 read32(const u8 *at) { return read16(at) | read16(at + 2) << 16; }

static void set_levels(Block *b, i32 level) {
  for (u32 i = 0; i < 16; i++) b->levels[i] = level;
}

static void decode_nibbles(const u8 *qs, u8 *codes) {
  for (u32 i = 0; i < 16; i++) codes[i] = qs[i] & 15, codes[i + 16] = qs[i] >> 4;
}

static void decode_fifth_bits(const u8 *bits, u8 *codes) {
  const u32 word = read32(bits);
  for (u32 i = 0; i < 32; i++) codes[i] |= (word >> i & 1) << 4;
}

// The scales and minima of Q4_K and Q5_K: six bits each, in twelve bytes.
static void decode_k_scales(const u8 *s, Block *b) {
  for (u32 g = 0; g < 8; g++) {
    b->levels[g] = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 2 & 0x30);
    b->minima[g] = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 2 & 0x30);
  }
}

static void decode_q4_k(const u8 *s, const u8 *qs, Block *b) {
  b->d = half(read16(s)), b->dmin = half(read16(s + 2));
  decode_k_scales(s + 4, b);
  for (u32 g = 0; g < 8; g++)
    for (u32 i = 0; i < 32; i++) b->codes[32 * g + i] = qs[32 * (g / 2) + i] >> 4 * (g & 1) & 15;
}

// Two bits of each element: a half of the block is four groups in 32 bytes.
static void decode_pairs(const u8 *qs, u8 *codes) {
  for (u32 i = 0; i < 256; i++) codes[i] = qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void decode_q2_k(const u8 *s, Block *b) {
  b->d = half(read16(s + 80)), b->dmin = half(read16(s + 82));
  for (u32 i = 0; i < 16; i++) b->levels[i] = s[i] & 15, b->minima[i] = s[i] >> 4;
  decode_pairs(s + 16, b->codes);
}

static void decode_q3_k(const u8 *s, Block *b) {
  const u8 *scales = s + 96;
  b->d = half(read16(s + 108));
  for (u32 i = 0; i < 16; i++)
    b->levels[i] = ((scales[i % 8] >> i / 8 * 4 & 15) | (scales[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
  decode_pairs(s + 32, b->codes);
  for (u32 i = 0; i < 256; i++) b->codes[i] |= (s[i % 32] >> i / 32 & 1) << 2;
}

static void decode_q6_k(const u8 *s, Block *b) {
  b->d = half(read16(s + 208));
  for (u32 i = 0; i < 16; i++) b->levels[i] = (i8)s[192 + i];
  for (u32 i = 0; i < 256; i++) {
    const u32 g = i / 32, k = i % 32, hi = g / 4;
    b->codes[i] = (s[64 * hi + 32 * (g & 1) + k] >> 4 * (g >> 1 & 1) & 15) | (s[128 + 32 * hi + k] >> 2 * (g & 3) & 3) << 4;
  }
}

static void decode_tq1_0(const u8 *s, Block *b) {
  static const u8 powers[5] = {1, 3, 9, 27, 81};
  u32 at = 0;
  for (u32 k = 0; k < 5; k++)
    for (u32 i = 0; i < 32; i++) b->codes[at++] = (u8)(s[i] * powers[k]) * 3 >> 8;
  for (u32 k = 0; k < 5; k++)
    for (u32 i = 0; i < 16; i++) b->codes[at++] = (u8)(s[32 + i] * powers[k]) * 3 >> 8;
  for (u32 k = 0; k < 4; k++)
    for (u32 i = 0; i < 4; i++) b->codes[at++] = (u8)(s[48 + i] * powers[k]) * 3 >> 8;
  b->d = half(read16(s + 52)), set_levels(b, 1);
}

// Eight signs from the seven stored ones: the number of set bits is even.
INLINE u32 signs8(u32 seven) { return (seven & 127) | (__builtin_popcount(seven & 127) & 1) << 7; }

// A pattern of eight codes of two bits; negative elements have codes 3 to 5.
static void place_eight(u32 pattern, u32 signs, u8 *codes) {
  for (u32 i = 0; i < 8; i++) codes[i] = (pattern >> 2 * i & 3) + 3 * (signs >> i & 1);
}
// A pattern of four codes of four bits, of which three are used; negative elements have codes from 8.
static void place_four(u32 pattern, u32 signs, u8 *codes) {
  for (u32 i = 0; i < 4; i++) codes[i] = (pattern >> 4 * i & 7) + 8 * (signs >> i & 1);
}
// A pattern of eight codes of two bits, shifted up or down by an eighth (IQ1): see formats.py.
static void place_shifted(u32 pattern, u32 down, u8 *codes) {
  for (u32 i = 0; i < 8; i++) codes[i] = (pattern >> 2 * i & 3) + (down ? 4 : 0);
}

static void decode_iq2_xxs(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s)) / 8;
  for (u32 g = 0; g < 8; g++) {
    const u8 *index = s + 2 + 8 * g;
    const u32 word = read32(index + 4);
    b->levels[g] = 2 * (word >> 28) + 1;
    for (u32 i = 0; i < 4; i++) place_eight(grid[index[i]], signs8(word >> 7 * i), b->codes + 32 * g + 8 * i);
  }
}

static void decode_iq2_xs(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s)) / 8;
  for (u32 i = 0; i < 16; i++) b->levels[i] = 2 * (s[66 + i / 2] >> 4 * (i & 1) & 15) + 1;
  for (u32 i = 0; i < 32; i++) {
    const u32 half_word = read16(s + 2 + 2 * i);
    place_eight(grid[half_word & 511], signs8(half_word >> 9), b->codes + 8 * i);
  }
}

static void decode_iq2_s(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s)) / 8;
  for (u32 i = 0; i < 16; i++) b->levels[i] = 2 * (s[74 + i / 2] >> 4 * (i & 1) & 15) + 1;
  for (u32 i = 0; i < 32; i++) {
    const u32 index = s[2 + i] | (s[66 + i / 4] >> 2 * (i & 3) & 3) << 8;
    place_eight(grid[index], s[34 + i], b->codes + 8 * i);
  }
}

static void decode_iq3_xxs(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s)) / 4;
  for (u32 g = 0; g < 8; g++) {
    const u32 word = read32(s + 66 + 4 * g);
    b->levels[g] = 2 * (word >> 28) + 1;
    for (u32 i = 0; i < 8; i++)
      place_four(grid[s[2 + 8 * g + i]], signs8(word >> i / 2 * 7) >> 4 * (i & 1), b->codes + 32 * g + 4 * i);
  }
}

static void decode_iq3_s(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s));
  for (u32 g = 0; g < 8; g++) {
    b->levels[g] = 2 * (s[106 + g / 2] >> 4 * (g & 1) & 15) + 1;
    for (u32 i = 0; i < 8; i++) {
      const u32 index = s[2 + 8 * g + i] | (s[66 + g] >> i & 1) << 8;
      place_four(grid[index], s[74 + 4 * g + i / 2] >> 4 * (i & 1), b->codes + 32 * g + 4 * i);
    }
  }
}

static void decode_iq1_s(const u8 *s, Block *b, const u16 *grid) {
  b->d = half(read16(s)) / 8;
  for (u32 g = 0; g < 8; g++) {
    const u32 upper = read16(s + 34 + 2 * g);
    b->levels[g] = 2 * (upper >> 12 & 7) + 1;
    for (u32 i = 0; i < 4; i++)
      place_shifted(grid[s[2 + 4 * g + i] | (upper >> 3 * i & 7) << 8], upper & 0x8000, b->codes + 32 * g + 8 * i);
  }
}

static void decode_iq1_m(const u8 *s, Block *b, const u16 *grid) {
  u32 d = 0;
  for (u32 i = 0; i < 4; i++) d |= (read16(s + 48 + 2 * i) >> 12) << 4 * i;
  b->d = half(d) / 8;
  for (u32 i = 0; i < 16; i++) b->levels[i] = 2 * (read16(s + 48 + i / 4 * 2) >> 3 * (i & 3) & 7) + 1;
  for (u32 i = 0; i < 32; i++) {
    const u32 nibble = s[32 + i / 2] >> 4 * (i & 1) & 15;
    place_shifted(grid[s[i] | (nibble & 7) << 8], nibble & 8, b->codes + 8 * i);
  }
}

// NVFP4's scale, an unsigned float of eight bits (E4M3), as a half; half as large, since the codes are doubled.
INLINE u16 e4m3_half(u8 x) {
  const u32 e = x >> 3 & 15, m = x & 7;
  if (!x || x == 0x7f) return 0;
  return e ? (e + 7) << 10 | m << 7 : to_half(m / 1024.0f);
}

static void decode_nvfp4(const u8 *s, u32 part, Block *b) {
  for (u32 h = 0; h < 2; h++) {
    const u8 *qs = s + 4 + 16 * part + 8 * h;
    b->halves[h] = e4m3_half(s[2 * part + h]);
    for (u32 i = 0; i < 8; i++) b->codes[16 * h + i] = qs[i] & 15, b->codes[16 * h + 8 + i] = qs[i] >> 4;
  }
}

// `part`: of 32 values, of a block of several units.
static void decode(u32 type, const u8 *s, u32 part, Block *b, const u16 *grid) {
  b->half = read16(s);
  switch (type) {
  case Q4_0: case IQ4_NL: decode_nibbles(s + 2, b->codes); break;
  case Q4_1: b->half_min = read16(s + 2), decode_nibbles(s + 4, b->codes); break;
  case Q5_0: decode_nibbles(s + 6, b->codes), decode_fifth_bits(s + 2, b->codes); break;
  case Q5_1:
    b->half_min = read16(s + 2), decode_nibbles(s + 8, b->codes), decode_fifth_bits(s + 4, b->codes);
    break;
  case Q8_0: memcpy(b->codes, s + 2, 32); break;
  case MXFP4: {
    union {
      u32 bits;
      f32 value;
    } u = {s[0] < 2 ? 0x00200000u << s[0] : (u32)(s[0] - 1) << 23};
    b->d = u.value, decode_nibbles(s + 1, b->codes);
    break;
  }
  case NVFP4: decode_nvfp4(s, part, b); break;
  case Q1_0:
    for (u32 i = 0; i < 32; i++) b->codes[i] = 2 * (s[2 + 4 * part + i / 8] >> i % 8 & 1);
    break;
  case Q2_0:
    for (u32 i = 0; i < 32; i++) b->codes[i] = s[2 + 8 * part + i / 4] >> i % 4 * 2 & 3;
    break;
  case Q2_K: decode_q2_k(s, b); break;
  case Q3_K: decode_q3_k(s, b); break;
  case Q4_K: decode_q4_k(s, s + 16, b); break;
  case Q5_K:
    decode_q4_k(s, s + 48, b);
    for (u32 i = 0; i < 256; i++) b->codes[i] |= (s[16 + i % 32] >> i / 32 & 1) << 4;
    break;
  case Q6_K: decode_q6_k(s, b); break;
  case IQ4_XS:
    b->d = half(read16(s));
    for (u32 g = 0; g < 8; g++) {
      b->levels[g] = ((s[4 + g / 2] >> 4 * (g & 1) & 15) | (read16(s + 2) >> 2 * g & 3) << 4) - 32;
      decode_nibbles(s + 8 + 16 * g, b->codes + 32 * g);
    }
    break;
  case TQ1_0: decode_tq1_0(s, b); break;
  case TQ2_0: decode_pairs(s, b->codes), b->d = half(read16(s + 64)), set_levels(b, 1); break;
  case IQ2_XXS: decode_iq2_xxs(s, b, grid); break;
  case IQ2_XS: decode_iq2_xs(s, b, grid); break;
  case IQ2_S: decode_iq2_s(s, b, grid); break;
  case IQ3_XXS: decode_iq3_xxs(s, b, grid); break;
  case IQ3_S: decode_iq3_s(s, b, grid); break;
  case IQ1_S: decode_iq1_s(s, b, grid); break;
  case IQ1_M: decode_iq1_m(s, b, grid); break;
  }
}

// Write a block as row `lane` of a unit.
static void place(const Format *f, const Block *b, u32 lane, u8 *unit) {
  u8 *body = unit + body_at(f->scales, f->minimum);
  if (f->scales == HALF_32) {
    ((u16 *)unit)[lane] = b->half;
    // files store a minimum that is added
    if (f->minimum) ((u16 *)unit)[4 + lane] = b->half_min ^ 0x8000;
  } else if (f->scales == HALF_16) {
    ((u16 *)unit)[lane] = b->halves[0], ((u16 *)unit)[4 + lane] = b->halves[1];
  } else {
    ((f32 *)unit)[lane] = b->d;
    if (f->minimum) ((f32 *)unit)[4 + lane] = b->dmin;
    const u32 size = level_bytes(f->scales), levels = levels_at(f->minimum);
    for (u32 i = 0; i < size / 4; i++) {
      unit[levels + 4 * i + lane] = b->levels[i];
      if (f->minimum) unit[levels + size + 4 * i + lane] = b->minima[i];
    }
  }
  const u32 nibbles = f->kind <= SIGNED_CODES;
  for (u32 g = 0; g < f->values / 32; g++, body += group_bytes(f->kind)) {
    const u8 *codes = b->codes + 32 * g;
    for (u32 i = 0; i < (nibbles ? 4 : 8); i++) {
      u32 word = 0;
      for (u32 j = 0; j < 4; j++) {
        const u32 code = nibbles ? codes[4 * i + j] | codes[16 + 4 * i + j] << 4 : codes[4 * i + j];
        word |= code << 8 * j;
      }
      ((u32 *)body)[4 * i + lane] = word;
    }
  }
}

static void pack_float_row(const Format *f, const u8 *from, u32 cols, u32 lane, u8 *panel) {
  if (f->bytes == 16)
    for (u32 k = 0; k < cols; k++) ((u32 *)panel)[4 * k + lane] = read32(from + 4 * k);
  else
    for (u32 k = 0; k < cols; k++) ((u16 *)panel)[4 * k + lane] = read16(from + 2 * k);
}

// Pack `rows` rows of a file, from row `row0` of the matrix at `to` on.
__attribute__((export_name("pack"))) void pack(u32 type, const u8 *from, u8 *to, u32 row0, u32 rows, u32 cols,
                                                const u16 *grid) {
  const Format *f = &formats[type];
  const size_t row_bytes = (size_t)(cols / f->raw_values) * f->raw_bytes, size = panel_bytes(f, cols);
  for (u32 row = row0; row < row0 + rows; row++, from += row_bytes) {
    u8 *panel = to + size * (row / 4);
    if (f->kind == FLOATS) {
      pack_float_row(f, from, cols, row % 4, panel);
      continue;
    }
    const u32 parts = f->raw_values / f->values;
    for (u32 u = 0; u < cols / f->values; u++) {
      Block b;
      decode(type, from + (size_t)(u / parts) * f->raw_bytes, u % parts, &b, grid);
      place(f, &b, row % 4, panel + u * f->bytes);
    }
  }
}

#pragma clang attribute pop
