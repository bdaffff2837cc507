// The products of a panel: a function for each kind of values and scales that a tensor type has (FORMAT_TABLE).
#include "products.h"

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
INLINE void dot_i8(Sums *s, v128_t w, const Rounded *x, u32 c) {
  const v128_t v = wasm_v128_load64_splat(x->wide + c);
  s->a = wasm_i32x4_add(s->a, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(w), v));
  s->b = wasm_i32x4_add(s->b, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(w), v));
}
INLINE v128_t by_row(Sums s, u32 is_signed) {
#ifdef __wasm_relaxed_simd__
  if (!is_signed) return s.a;
#endif
  return wasm_i32x4_add(wasm_i32x4_shuffle(s.a, s.b, 0, 2, 4, 6), wasm_i32x4_shuffle(s.a, s.b, 1, 3, 5, 7));
}

// Add the products of half a group (16 columns) of four rows and T rows of x.
INLINE void dot_half(u32 kind, u32 parts, u32 T, const u8 *group, v128_t table, u32 h, const Rounded *x, u32 column, Sums *s) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const u32 nibbles = kind <= SIGNED_CODES, c = column + 16 * h + 4 * i;
    v128_t w = wasm_v128_load(group + 16 * (nibbles ? i : 4 * h + i));
    if (nibbles) w = wasm_v128_and(h ? wasm_u16x8_shr(w, 4) : w, wasm_i8x16_splat(15)); // x86 has no shift of bytes
    if (kind == CODES || kind == SIGNED_CODES) w = wasm_i8x16_swizzle(table, w);
#pragma unroll
    for (u32 t = 0; t < T; t++) {
      if (kind == SIGNED_CODES || kind == SIGNED_BYTES) dot_i8(&s[t], w, &x[t], c);
      else dot_u7(&s[t], w, &x[t], c);
#ifdef PAIRS
      // 16 bits hold so many pairs: 2 * 127 * (15, 63 or 127) each
      const u32 room = kind == NIBBLES ? 8 / parts : kind == BYTES ? 2 : 1;
      if (kind != SIGNED_CODES && kind != SIGNED_BYTES && (4 * h + i + 1) % room == 0) {
        s[t].a = wasm_i32x4_add(s[t].a, wasm_i32x4_extadd_pairwise_i16x8(s[t].b)), s[t].b = wasm_i32x4_splat(0);
      }
#endif
    }
  }
}

INLINE void rounded_product(u32 kind, u32 scales, u32 minimum, u32 T, const Format *f, const u8 *unit, u32 cols,
                            const u8 *const rows[TILE], v128_t to[TILE]) {
  const u32 groups = scales >= LEVELS_32 ? 8 : 1, is_signed = kind == SIGNED_CODES || kind == SIGNED_BYTES;
  const u32 parts = scales == LEVELS_16 || scales == HALF_16 ? 2 : 1;
  const v128_t table = wasm_v128_load(f->table);
  const v128_t offset = splat(-(f32)f->offset);
  Rounded x[TILE];
  v128_t sum[TILE];
#pragma unroll
  for (u32 t = 0; t < T; t++) x[t] = rounded_row(rows[t], cols), sum[t] = splat(0);
  for (u32 column = 0; column < cols; unit += body_at(scales, minimum) + groups * group_bytes(kind)) {
    const u8 *body = unit + body_at(scales, minimum);
    for (u32 g = 0; g < groups; g++, column += 32, body += group_bytes(kind)) {
      const u32 i = column / 32;
#pragma unroll
      for (u32 p = 0; p < parts; p++) {
        Sums s[TILE];
#pragma unroll
        for (u32 t = 0; t < T; t++) s[t] = (Sums){wasm_i32x4_splat(0), wasm_i32x4_splat(0)};
        if (parts == 2) {
          dot_half(kind, parts, T, body, table, p, x, column, s);
        } else {
          dot_half(kind, parts, T, body, table, 0, x, column, s);
          dot_half(kind, parts, T, body, table, 1, x, column, s);
        }
        const v128_t d = scale4(unit, scales, minimum, g, p);
        const v128_t m = minimum ? minimum4(unit, scales, g, p) : d;
#pragma unroll
        for (u32 t = 0; t < T; t++) {
          v128_t levels = wasm_v128_load32_splat(x[t].sums + 2 * i + (parts == 2));
          if (p) levels = wasm_f32x4_sub(wasm_v128_load32_splat(x[t].sums + 2 * i), levels);
          v128_t dot = wasm_f32x4_convert_i32x4(by_row(s[t], is_signed));
          if (!minimum && !is_signed) dot = madd(levels, offset, dot); // exact: all three are small integers
          const v128_t scale = wasm_v128_load32_splat(x[t].d + i);
          sum[t] = madd(dot, wasm_f32x4_mul(d, scale), sum[t]);
          if (minimum) sum[t] = wasm_f32x4_sub(sum[t], wasm_f32x4_mul(m, wasm_f32x4_mul(scale, levels)));
        }
      }
    }
  }
#pragma unroll
  for (u32 t = 0; t < T; t++) to[t] = sum[t];
}

typedef void Kernel(const Format *f, const u8 *panel, u32 cols, const u8 *const x[TILE], v128_t to[TILE]);

#define KERNEL(kind, scales, minimum, T)                                                                               \
  static void kind##_##scales##_##minimum##_##T(const Format *f, const u8 *panel, u32 cols, const u8 *const x[TILE],   \
                                                v128_t to[TILE]) {                                                     \
    rounded_product(kind, scales, minimum, T, f, panel, cols, x, to);                                                  \
  }
#define KERNELS(kind, scales, minimum)                                                                                 \
  KERNEL(kind, scales, minimum, 1)                                                                                     \
  KERNEL(kind, scales, minimum, 2)                                                                                     \
  KERNEL(kind, scales, minimum, 3)                                                                                     \
  KERNEL(kind, scales, minimum, 4)
EACH_KIND(KERNELS)

#define KERNEL_ENTRY(kind, scales, minimum)                                                                            \
  [kind][scales][minimum] = {kind##_##scales##_##minimum##_1, kind##_##scales##_##minimum##_2,                         \
                             kind##_##scales##_##minimum##_3, kind##_##scales##_##minimum##_4},
static Kernel *const kernels[FLOATS][NO_SCALE][2][TILE] = {EACH_KIND(KERNEL_ENTRY)};

#define STEP 128 // columns whose products are added before they are added to the others: a result has the same bits in all tiles

// to = P panels of floats or halves, `stride` bytes apart, times T rows of x.
INLINE void float_tile(u32 P, u32 T, u32 halves, const u8 *w, size_t stride, u32 cols, const u8 *const *rows,
                       v128_t (*to)[TILE]) {
  const u32 column_bytes = halves ? 8 : 16;
  const f32 *x[TILE];
#pragma unroll
  for (u32 t = 0; t < T; t++) x[t] = (const f32 *)rows[t];
#pragma unroll
  for (u32 i = 0; i < P * T; i++) to[i / T][i % T] = splat(0);
  for (u32 column = 0; column < cols; column += STEP) {
    const u32 end = MIN(cols, column + STEP);
    v128_t sum[TILE][TILE];
#pragma unroll
    for (u32 i = 0; i < P * T; i++) sum[i / T][i % T] = splat(0);
    for (u32 k = column; k < end; k++) {
      v128_t v[TILE];
#pragma unroll
      for (u32 p = 0; p < P; p++) {
        const u8 *at = w + p * stride + (size_t)column_bytes * k;
        v[p] = halves ? finite_halves(at) : wasm_v128_load(at);
      }
#pragma unroll
      for (u32 t = 0; t < T; t++) {
        const v128_t value = wasm_v128_load32_splat(x[t] + k);
#pragma unroll
        for (u32 p = 0; p < P; p++) sum[p][t] = madd(v[p], value, sum[p][t]);
      }
    }
#pragma unroll
    for (u32 i = 0; i < P * T; i++) to[i / T][i % T] = wasm_f32x4_add(to[i / T][i % T], sum[i / T][i % T]);
  }
}

// A panel as floats (cols, 4 rows): where it is, or in `to`.
static const u8 *float_panel(const Format *f, const u8 *unit, u32 cols, f32 *to) {
  if (f->kind == FLOATS && f->bytes == 16) return unit;
  if (f->kind != FLOATS)
    for (u32 column = 0; column < cols; column += f->values, unit += f->bytes) unpack(f, unit, to + 4 * column);
  else if (f->offset) // bf16
    for (u32 k = 0; k < cols; k++) wasm_v128_store(to + 4 * k, wasm_i32x4_shl(wasm_u32x4_load16x4(unit + 8 * k), 16));
  else
    for (u32 k = 0; k < cols; k++) wasm_v128_store(to + 4 * k, finite_halves(unit + 8 * k));
  return (const u8 *)to;
}

u32 float_panels(const Format *f, const u8 *w, u32 cols, u32 panels, u32 n, f32 *scratch, FloatPanels *to) {
  const size_t size = panel_bytes(f, cols);
  if (n == 1 && f->kind == FLOATS && !(f->bytes == 8 && f->offset)) { // nothing would be read twice
    *to = (FloatPanels){w, size, f->bytes == 8};
    return MIN(panels, 4);
  }
  const u32 count = MIN(panels, FLOAT_PANELS);
  *to = (FloatPanels){float_panel(f, w, cols, scratch), 16 * (size_t)cols, 0};
  if (count == 2) float_panel(f, w + size, cols, scratch + 4 * cols);
  return count;
}

void float_products(const FloatPanels *w, u32 panels, u32 cols, const u8 *const x[TILE], u32 count, v128_t (*to)[TILE]) {
  if (w->halves && panels == 4) float_tile(4, 1, 1, w->at, w->stride, cols, x, to);
  else if (panels == 4) float_tile(4, 1, 0, w->at, w->stride, cols, x, to);
  else if (panels == 2 && count > 1) float_tile(2, 4, 0, w->at, w->stride, cols, x, to);
  else
    for (u32 p = 0; p < panels; p++) {
      const u8 *at = w->at + p * w->stride;
      if (w->halves) float_tile(1, 1, 1, at, 0, cols, x, to + p);
      else if (count == 1) float_tile(1, 1, 0, at, 0, cols, x, to + p);
      else float_tile(1, 4, 0, at, 0, cols, x, to + p);
    }
}

void panel_product(const Format *f, const u8 *panel, u32 cols, const u8 *const x[TILE], u32 count, v128_t to[TILE]) {
  kernels[f->kind][f->scales][f->minimum][count - 1](f, panel, cols, x, to);
}
