// What the processor can do at most, for kernels to be compared with (py_engine/cpu/limits.py): ops that only read, and
// ops that only multiply.
#include "ops.h"
#include "products.h"

#define LINE 64
#define SUMS 8       // that do not wait for each other
#define X_BYTES 1024 // of x, which stays in the first cache

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

// Each time, SUMS vectors are multiplied with a value of x, and added: bytes as products of rounded rows do it, or floats.
void multiply_work(const multiply_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u8 *x = AT(u8, r->x);
  const Rounded rounded = {.q = (const i8 *)x, .wide = (const i16 *)x};
  const v128_t w = wasm_v128_load(x);
  Sums sums[SUMS];
#pragma unroll
  for (u32 i = 0; i < SUMS; i++) sums[i] = (Sums){splat(0), splat(0)};
  const u32 begin = part_begin(r->times, chunk, chunks), end = part_begin(r->times, chunk + 1, chunks);
  for (u32 k = begin; k < end; k++) {
    const u32 at = k * 4 * SUMS % X_BYTES;
#pragma unroll
    for (u32 i = 0; i < SUMS; i++) {
      if (r->floats) sums[i].a = madd(w, wasm_v128_load32_splat(x + at + 4 * i), sums[i].a);
      else dot_u7(&sums[i], w, &rounded, at + 4 * i);
    }
  }
  v128_t all = splat(0);
#pragma unroll
  for (u32 i = 0; i < SUMS; i++) all = wasm_v128_xor(all, wasm_v128_xor(sums[i].a, sums[i].b));
  wasm_v128_store(AT(u8, r->y) + 16 * chunk, all);
}
