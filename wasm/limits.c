// What the processor can do at most, for kernels to be compared with (py_engine/cpu/limits.py): ops that only read, and
// ops that only multiply.
#include "ops.h"

#define LINE 64
#define SUMS 8 // that do not wait for each other

u32 read_chunks(const read_call *r) { return divided(r->bytes / LINE, 1024); }

void read_work(const read_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 lines = r->bytes / LINE;
  const u8 *at = AT(u8, r->x) + (size_t)LINE * part_begin(lines, chunk, chunks);
  const u8 *end = AT(u8, r->x) + (size_t)LINE * part_begin(lines, chunk + 1, chunks);
  v128_t sum[4] = {splat(0), splat(0), splat(0), splat(0)};
  for (; at < end; at += LINE)
#pragma unroll
    for (u32 i = 0; i < 4; i++) sum[i] = wasm_v128_xor(sum[i], wasm_v128_load(at + 16 * i));
  const v128_t all = wasm_v128_xor(wasm_v128_xor(sum[0], sum[1]), wasm_v128_xor(sum[2], sum[3]));
  wasm_v128_store(AT(u8, r->y) + 16 * chunk, all);
}

u32 multiply_chunks(const multiply_call *r) { return divided(r->times, 1); }

// 16 products of bytes as the products of rounded rows add them, without what a kernel does to get at them.
INLINE v128_t add_bytes(v128_t sum, v128_t w) {
#if defined PAIRS
  return wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(sum, w));
#elif defined __wasm_relaxed_simd__
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(sum, w, sum);
#else
  return wasm_i32x4_add(wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(sum, w)), wasm_i32x4_dot_i16x8(w, sum));
#endif
}

void multiply_work(const multiply_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const v128_t w = wasm_v128_load(AT(u8, r->x));
  v128_t sum[SUMS];
#pragma unroll
  for (u32 i = 0; i < SUMS; i++) sum[i] = wasm_v128_load(AT(u8, r->x) + 16 * i);
  const u32 begin = part_begin(r->times, chunk, chunks), end = part_begin(r->times, chunk + 1, chunks);
  if (r->floats) {
    for (u32 k = begin; k < end; k++)
#pragma unroll
      for (u32 i = 0; i < SUMS; i++) sum[i] = madd(sum[i], w, w);
  } else {
    for (u32 k = begin; k < end; k++)
#pragma unroll
      for (u32 i = 0; i < SUMS; i++) sum[i] = add_bytes(sum[i], w);
  }
  v128_t all = splat(0);
#pragma unroll
  for (u32 i = 0; i < SUMS; i++) all = wasm_v128_xor(all, sum[i]);
  wasm_v128_store(AT(u8, r->y) + 16 * chunk, all);
}
