// Where the rows of a q8_0 cache are.
#pragma once

#include "ops.h"

// A page of a q8_0 cache: the bytes of its rows, then a scale for each group of 32.
INLINE u8 *quantized_page(u32 cache, u32 row, u32 page, u32 cols) {
  return AT(u8, cache) + (size_t)(row / page) * page * (cols + cols / 8);
}
INLINE i8 *quantized_row(u32 cache, u32 row, u32 page, u32 cols) {
  return (i8 *)quantized_page(cache, row, page, cols) + (row % page) * cols;
}
INLINE f32 *row_scales(u32 cache, u32 row, u32 page, u32 cols) {
  return (f32 *)(quantized_page(cache, row, page, cols) + page * cols) + (row % page) * (cols / 32);
}
