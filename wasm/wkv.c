// The ops of RWKV's time mix: mixtures with the token before, and scans of state matrices.
#include "ops.h"
#include "runs.h"

INLINE f32 sigmoid(f32 x) { return 1 / (1 + exp1(-x)); }

// -- mixtures, divided by tokens

u32 token_shift_chunks(const token_shift_call *r) { return divided(batch_size(r->state), UP(4096, r->cols)); }

INLINE f32 *window(const token_shift_call *r, u32 m, u32 back) {
  return ROW(r->windows, r->rows * r->cols, HALF_AFTER(r, m, back)) + r->window * r->cols;
}

void token_shift_work(const token_shift_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), cols = r->cols, y[] = {r->y0, r->y1, r->y2};
  const f32 *factors = AT(f32, r->factors) + r->first * cols;
  f32 *zeros = (f32 *)scratch, *saved = zeros + cols;
  for (u32 i = 0; i < cols; i++) zeros[i] = 0;
  EACH_ROW(m, n) {
    const u32 begins = begins_run(r->state, r->per_token, m);
    const f32 *x = ROW(r->x, r->x_stride, m), *before = zeros;
    if (OFFSET(r, m)) {
      before = begins ? window(r, m, 1) : ROW(r->x, r->x_stride, m - 1);
      if (begins) before = memcpy(saved, before, 4 * cols); // it may be written below
    }
    if (begins && r->writes) { // only this token's thread reads the window
      const u32 end = run_end(r->state, r->per_token, m);
      for (u32 last = end > m + 2 ? end - 2 : m; last < end; last++)
        memcpy(window(r, last, 0), ROW(r->x, r->x_stride, last), 4 * cols);
    }
    for (u32 part = 0; part < r->parts; part++) {
      const f32 *f = factors + part * cols;
      const f32 *change = r->changes ? ROW(r->changes, r->changes_stride, m) + (r->first + part) * cols : zeros;
      f32 *to = ROW(y[part], r->y_stride, m);
      for (u32 i = 0; i < cols; i++) to[i] = x[i] + (before[i] - x[i]) * (f[i] + change[i]);
    }
  }
}

// -- what RWKV-7's scan reads, divided by tokens and heads

u32 wkv7_inputs_chunks(const wkv7_inputs_call *r) {
  return divided(batch_size(r->state) * r->heads, UP(256, r->cols));
}

void wkv7_inputs_work(const wkv7_inputs_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 cols = r->cols;
  EACH_ROW(item, batch_size(r->state) * r->heads) {
    const u32 m = item / r->heads, at = item % r->heads * cols;
    const f32 *of_keys = AT(f32, r->factors) + at, *of_rates = of_keys + r->heads * cols;
    f32 *x = ROW(r->x, r->stride, m) + at, *k = x + r->key, *v = x + r->value, *removed = x + r->removed;
    f32 *decay = x + r->decay, *rate = x + r->rate, *first_values = ROW(r->first_values, r->first_stride, m) + at, sum = 0;
    for (u32 i = 0; i < cols; i++) sum += k[i] * of_keys[i] * k[i] * of_keys[i];
    const f32 scale = 1 / MAX(__builtin_sqrtf(sum), 1e-12f);
    for (u32 i = 0; i < cols; i++) {
      const f32 a = sigmoid(rate[i]);
      if (r->is_first) first_values[i] = v[i];
      else v[i] += (first_values[i] - v[i]) * sigmoid(removed[i]);
      decay[i] = exp1(-0.6065306597f * sigmoid(decay[i]));
      removed[i] = k[i] * of_keys[i] * scale;
      rate[i] = removed[i] * a;
      k[i] *= 1 + (a - 1) * of_rates[i];
    }
  }
}

// -- the scan, divided by heads

u32 wkv_scan_chunks(const wkv_scan_call *r) { return batch_size(r->state) ? r->heads : 0; }

// One token of a head, whose matrix `s` is (keys, values). The scratch memory after it holds a row of values.
static void scan_token(const wkv_scan_call *r, u32 m, u32 head, f32 *s) {
  const u32 size = r->size, at = head * size, group = head / (r->heads / r->groups) * size;
  const f32 *x = ROW(r->x, r->stride, m), *w = x + r->decay + at, *receptance = x + r->receptance + at;
  const f32 *k = x + r->key + group, *v = x + r->value + group, *bonus = AT(f32, r->bonus) + at;
  const f32 *removed = x + r->removed + at, *added = x + r->added + at;
  const f32 scale = r->rule == WKV_GLA ? 1 / __builtin_sqrtf(size) : 1;
  f32 *y = ROW(r->y, r->y_stride, m) + at, *lost = s + size * size;
  for (u32 j = 0; j < size; j++) y[j] = lost[j] = 0;
  if (r->rule == WKV_WKV7)
    for (u32 i = 0; i < size; i++)
      for (u32 j = 0; j < size; j += 4)
        wasm_v128_store(lost + j, madd(splat(removed[i]), wasm_v128_load(s + i * size + j), wasm_v128_load(lost + j)));
  for (u32 i = 0; i < size; i++, s += size) {
    const f32 decay = r->rule == WKV_WKV7 ? w[i] : exp1(-exp1(w[i]));
    const f32 key = r->rule == WKV_GLA ? k[i] - k[i] * decay : k[i], read = receptance[i] * scale;
    const v128_t keys = splat(key), decays = splat(decay), reads = splat(read);
    const v128_t adds = splat(r->rule == WKV_WKV7 ? -added[i] : 0);
    const v128_t own = splat(r->rule == WKV_WKV6 ? key * bonus[i] : 0);
    for (u32 j = 0; j < size; j += 4) {
      const v128_t value = wasm_v128_load(v + j), old = wasm_v128_load(s + j);
      v128_t next = madd(keys, value, wasm_f32x4_mul(old, decays));
      if (r->rule == WKV_WKV7) next = madd(adds, wasm_v128_load(lost + j), next);
      const v128_t seen = r->rule == WKV_WKV6 ? madd(own, value, old) : next;
      wasm_v128_store(y + j, madd(reads, seen, wasm_v128_load(y + j)));
      wasm_v128_store(s + j, next);
    }
  }
}

void wkv_scan_work(const wkv_scan_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), size = r->size * r->size;
  f32 *s = (f32 *)scratch;
  for (u32 begin = 0, end; begin < n; begin = end) {
    end = run_end(r->state, r->per_token, begin);
    EACH_ROW(head, r->heads) {
      for (u32 m = begin; m < end; m++) {
        if (!OFFSET(r, m)) memset(s, 0, 4 * size);
        else if (m == begin) memcpy(s, ROW(r->matrices, r->heads * size, HALF_AFTER(r, m, 1)) + head * size, 4 * size);
        scan_token(r, m, head, s);
        if (m + 2 >= end) memcpy(ROW(r->matrices, r->heads * size, HALF_AFTER(r, m, 0)) + head * size, s, 4 * size);
      }
    }
  }
}

// -- the norm, a token's own value and the gate, divided by tokens and heads

u32 wkv_output_chunks(const wkv_output_call *r) {
  return divided(batch_size(r->state) * r->heads, UP(256, r->cols));
}

void wkv_output_work(const wkv_output_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 cols = r->cols, width = r->heads * cols;
  EACH_ROW(item, batch_size(r->state) * r->heads) {
    const u32 m = item / r->heads, at = item % r->heads * cols;
    const f32 *x = ROW(r->x, r->x_stride, m) + at, *factors = AT(f32, r->factors) + at;
    f32 *y = ROW(r->y, r->y_stride, m) + at, mean = 0, squares = 0, bonus = 0;
    memcpy(y, x, 4 * cols);
    if (r->norm) {
      for (u32 i = 0; i < cols; i++) mean += x[i];
      mean /= cols;
      for (u32 i = 0; i < cols; i++) squares += (x[i] - mean) * (x[i] - mean);
      const f32 scale = 1 / __builtin_sqrtf(squares / cols + r->eps);
      for (u32 i = 0; i < cols; i++) y[i] = (x[i] - mean) * scale * factors[i] + factors[width + i];
      factors += 2 * width;
    }
    if (r->bonus) {
      const f32 *row = ROW(r->rows, r->row_stride, m) + at;
      for (u32 i = 0; i < cols; i++) bonus += row[r->receptance + i] * row[r->key + i] * factors[i];
      for (u32 i = 0; i < cols; i++) y[i] += bonus * row[r->value + i];
    }
    const f32 *gate = ROW(r->gate, r->gate_stride, m) + at;
    for (u32 i = 0; i < cols; i++) {
      if (r->kind == GATE_LINEAR) y[i] *= gate[i];
      if (r->kind == GATE_SILU) y[i] *= gate[i] * sigmoid(gate[i]);
      if (r->kind == GATE_SIGMOID) y[i] *= sigmoid(gate[i]);
    }
  }
}
