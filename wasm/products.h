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

// x as products read it: rows of floats, or rounded rows.
typedef struct {
  const u8 *at;
  size_t row; // bytes
  u32 exact;  // floats
} Input;

INLINE const u8 *input_row(const Input *x, u32 m) { return x->at + x->row * m; }

// to[t] = panel * x[t] for four rows of the matrix and TILE rows of x, rounded, of which `count` differ.
void panel_product(const Format *f, const u8 *panel, u32 cols, const u8 *const x[TILE], u32 count, v128_t to[TILE]);

#define FLOAT_PANELS 2 // that are converted at a time

// Panels of floats or halves, `stride` bytes apart.
typedef struct {
  const u8 *at;
  size_t stride;
  u32 halves;
} FloatPanels;

// Convert some of `panels` panels for products of n rows of floats; returns how many. `scratch`: FLOAT_PANELS * cols * 4 floats.
u32 float_panels(const Format *f, const u8 *w, u32 cols, u32 panels, u32 n, f32 *scratch, FloatPanels *to);

// to[p][t] = panel p * x[t], for TILE rows of x, floats, of which `count` differ.
void float_products(const FloatPanels *w, u32 panels, u32 cols, const u8 *const x[TILE], u32 count, v128_t (*to)[TILE]);
