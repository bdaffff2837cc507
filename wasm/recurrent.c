// The ops of recurrent layers: causal convolutions, scans of state matrices, gated norms.
#include "formats.h"
#include "ops.h"
#include "runs.h"

INLINE v128_t silu4(v128_t x) { return wasm_f32x4_div(x, wasm_f32x4_add(splat(1), exp4(wasm_f32x4_neg(x)))); }

// Up to four floats from an address on.
INLINE v128_t load_some(const f32 *x, u32 count) {
  if (count == 4) return wasm_v128_load(x);
  f32 lanes[4] = {0};
  for (u32 i = 0; i < count; i++) lanes[i] = x[i];
  return wasm_v128_load(lanes);
}
INLINE void store_some(f32 *y, v128_t value, u32 count) {
  if (count == 4) {
    wasm_v128_store(y, value);
    return;
  }
  f32 lanes[4];
  wasm_v128_store(lanes, value);
  for (u32 i = 0; i < count; i++) y[i] = lanes[i];
}

// -- the convolution, divided by channels: four at a time

u32 ssm_conv_chunks(const ssm_conv_call *r) { return divided(UP(r->channels, 4), 16); }

void ssm_conv_work(const ssm_conv_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), taps = r->taps, size = r->channels;
  for (u32 begin = 0, end; begin < n; begin = end) {
    end = run_end(r->state, r->per_token, begin);
    EACH_ROW(block, UP(size, 4)) {
      const u32 i = 4 * block, count = MIN(4, size - i);
      f32 columns[MAX_TAPS + 1][4] = {{0}};
      const u32 apart = r->apart, own_weights = taps / apart + 1;
      if (r->w) { // a matrix, in panels of 4 channels
        const Format *f = &formats[r->type];
        const u8 *unit = AT(u8, r->w) + panel_bytes(f, own_weights) * block;
        f32 *kernel = (f32 *)scratch;
        for (u32 k = 0; k < own_weights; k += f->values, unit += f->bytes) unpack(f, unit, kernel + 4 * k);
        for (u32 k = 0; k < own_weights; k++) memcpy(columns[k * apart], kernel + 4 * k, 16);
      } else {
        for (u32 c = 0; c < count; c++)
          for (u32 k = 0; k < own_weights; k++) columns[k * apart][c] = AT(f32, r->weights)[(i + c) * own_weights + k];
      }
      v128_t weights[MAX_TAPS + 1], earlier[MAX_TAPS]; // inputs before the token, the latest first
      for (u32 k = 0; k <= taps; k++) weights[k] = wasm_v128_load(columns[k]);
      for (u32 k = 0; k < taps; k++) earlier[k] = splat(0);
      const v128_t bias = r->bias ? load_some(AT(f32, r->bias) + i, count) : splat(0);
      for (u32 m = begin; m < end; m++) {
        const u32 offset = OFFSET(r, m);
        if (!offset) {
          for (u32 k = 0; k < taps; k++) earlier[k] = splat(0);
        } else if (m == begin) {
          const f32 *window = ROW(r->windows, taps * size, HALF_AFTER(r, m, 1));
          for (u32 k = 0; k < taps; k++) earlier[k] = load_some(window + k * size + i, count);
        }
        const v128_t own = load_some(ROW(r->x, r->x_stride, m) + r->first + i, count);
        v128_t sum = wasm_f32x4_mul(own, weights[taps]);
        for (u32 k = 0; k < taps; k++) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(earlier[k], weights[taps - 1 - k]));
        sum = wasm_f32x4_add(sum, bias);
        store_some(ROW(r->y, r->y_stride, m) + i, silu4(sum), count);
        for (u32 k = taps - 1; k; k--) earlier[k] = earlier[k - 1];
        earlier[0] = own;
        if (m + 2 >= end && !r->tile) {
          f32 *window = ROW(r->windows, taps * size, HALF_AFTER(r, m, 0));
          for (u32 k = 0; k < taps; k++) store_some(window + k * size + i, earlier[k], count);
        }
      }
    }
  }
}

// The last inputs after each of a batch's last two positions.
u32 ssm_window_chunks(const ssm_window_call *r) { return batch_size(r->state) ? divided(r->channels, 256) : 0; }

void ssm_window_work(const ssm_window_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), taps = r->taps, size = r->channels, begin = n > 1 ? n - 2 : 0;
  EACH_ROW(i, size) {
    f32 inputs[2][MAX_TAPS]; // all are read before any is written: they may be in the same half
    for (u32 m = begin; m < n; m++) {
      const u32 offset = OFFSET(r, m);
      for (u32 k = 0; k < taps; k++) {
        f32 *input = &inputs[m - begin][k];
        if (k > offset) *input = 0;
        else if (k <= m) *input = ROW(r->x, r->x_stride, m - k)[r->first + i];
        else *input = ROW(r->windows, taps * size, HALF_AFTER(r, 0, 1))[(k - m - 1) * size + i];
      }
    }
    for (u32 m = begin; m < n; m++)
      for (u32 k = 0; k < taps; k++) ROW(r->windows, taps * size, HALF_AFTER(r, m, 0))[k * size + i] = inputs[m - begin][k];
  }
}

// -- the scan, divided by heads

INLINE f32 dot_row(const f32 *a, const f32 *b, u32 size) {
  v128_t sum = splat(0);
  u32 k = 0;
  for (; k + 4 <= size; k += 4) sum = madd(wasm_v128_load(a + k), wasm_v128_load(b + k), sum);
  f32 total = sum4(sum);
  for (; k < size; k++) total += a[k] * b[k];
  return total;
}

// s = decay * s + u * k
INLINE void update_row(f32 *s, f32 decay, f32 u, const f32 *k, u32 size) {
  const v128_t decays = splat(decay), gains = splat(u);
  u32 i = 0;
  for (; i + 4 <= size; i += 4)
    wasm_v128_store(s + i, madd(gains, wasm_v128_load(k + i), wasm_f32x4_mul(decays, wasm_v128_load(s + i))));
  for (; i < size; i++) s[i] = s[i] * decay + u * k[i];
}

// s *= decays
INLINE void decay_row(f32 *s, const f32 *decays, u32 size) {
  u32 i = 0;
  for (; i + 4 <= size; i += 4) wasm_v128_store(s + i, wasm_f32x4_mul(wasm_v128_load(s + i), wasm_v128_load(decays + i)));
  for (; i < size; i++) s[i] *= decays[i];
}

INLINE f32 inverse_length(const f32 *x, u32 size, f32 eps) {
  return 1 / __builtin_sqrtf(dot_row(x, x, size) + eps);
}

// "s6" is divided by rows, since it has one head.
INLINE u32 scan_parts(const ssm_scan_call *r) { return r->rule == RULE_S6 ? r->rows : r->heads; }

u32 ssm_scan_chunks(const ssm_scan_call *r) {
  return divided(batch_size(r->state) ? scan_parts(r) : 0, r->rule == RULE_S6 ? 64 : 1);
}

// One token of a row of "s6".
static void scan_row(const ssm_scan_call *r, u32 m, u32 row, f32 *s) {
  const f32 *rates = AT(f32, r->rates), *a = rates + row * r->cols, *k = ROW(r->k, r->k_stride, m) + r->keys;
  const f32 *q = ROW(r->q, r->q_stride, m) + r->queries, v = ROW(r->x, r->x_stride, m)[r->values + row];
  rates += r->rows * r->cols;
  const f32 dt = softplus(ROW(r->gates, r->g_stride, m)[r->dt + row] + rates[row]);
  f32 sum = rates[r->rows + row] * v;
  for (u32 i = 0; i < r->cols; i++) {
    s[i] = s[i] * exp1(dt * a[i]) + dt * v * k[i];
    sum += s[i] * q[i];
  }
  ROW(r->y, r->y_stride, m)[row] = sum;
}

// One token of a head, whose matrix `s` is (rows, cols). The scratch memory after it is for the decay of each column.
static void scan_token(const ssm_scan_call *r, u32 m, u32 head, f32 *s) {
  const u32 group = r->tiled ? head % r->groups : head / (r->heads / r->groups), cols = r->cols;
  const f32 *gates = ROW(r->gates, r->g_stride, m), *rates = AT(f32, r->rates);
  const f32 *k = ROW(r->k, r->k_stride, m) + r->keys + group * cols;
  const f32 *q = ROW(r->q, r->q_stride, m) + r->queries + group * cols;
  const f32 *v = ROW(r->x, r->x_stride, m) + r->values + head * r->rows;
  f32 *y = ROW(r->y, r->y_stride, m) + head * r->rows;
  f32 dt = 0, decay = 1, *decays = s + r->rows * cols;
  if (r->per_key) {
    const u32 first = head * cols;
    for (u32 c = first; c < first + cols; c++) {
      const f32 a = rates[head], u = gates[r->dt + c] + rates[r->heads + c];
      decays[c - first] = exp1(r->bound ? r->bound / (1 + exp1(r->per_key == 3 ? a * u : -a * u)) : a * softplus(u));
    }
  } else {
    dt = softplus(gates[r->dt + head] + rates[r->heads + head]), decay = exp1(dt * rates[head]);
  }
  if (r->rule == RULE_SSD) {
    for (u32 i = 0; i < r->rows; i++, s += cols) {
      update_row(s, decay, dt * v[i], k, cols);
      y[i] = dot_row(s, q, cols) + rates[2 * r->heads + head] * v[i];
    }
    return;
  }
  const f32 beta = 1 / (1 + exp1(-gates[r->beta + head])), of_k = inverse_length(k, cols, r->eps);
  const f32 of_q = inverse_length(q, cols, r->eps) / __builtin_sqrtf(cols);
  for (u32 i = 0; i < r->rows; i++, s += cols) {
    if (r->per_key) decay_row(s, decays, cols);
    update_row(s, decay, beta * (v[i] - decay * dot_row(s, k, cols) * of_k) * of_k, k, cols);
    y[i] = dot_row(s, q, cols) * of_q;
  }
}

void ssm_scan_work(const ssm_scan_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), parts = scan_parts(r), size = r->heads * r->rows * r->cols / parts;
  f32 *s = (f32 *)scratch;
  for (u32 begin = 0, end; begin < n; begin = end) {
    end = run_end(r->state, r->per_token, begin);
    EACH_ROW(part, parts) {
      for (u32 m = begin; m < end; m++) {
        if (!OFFSET(r, m)) memset(s, 0, 4 * size);
        else if (m == begin) memcpy(s, ROW(r->matrices, parts * size, HALF_AFTER(r, m, 1)) + part * size, 4 * size);
        if (r->rule == RULE_S6) scan_row(r, m, part, s);
        else scan_token(r, m, part, s);
        if (m + 2 >= end) memcpy(ROW(r->matrices, parts * size, HALF_AFTER(r, m, 0)) + part * size, s, 4 * size);
      }
    }
  }
}

// -- the gated norm, divided by tokens and groups

u32 gated_norm_chunks(const gated_norm_call *r) {
  return divided(batch_size(r->state) * r->groups, UP(1024, r->cols));
}

void gated_norm_work(const gated_norm_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 cols = r->cols;
  EACH_ROW(item, batch_size(r->state) * r->groups) {
    const u32 m = item / r->groups, at = item % r->groups * cols;
    const f32 *x = ROW(r->x, r->x_stride, m) + at, *z = ROW(r->z, r->z_stride, m) + r->first + at;
    const f32 *norm = r->norms ? AT(f32, r->norm) + at % (r->norms * cols) : 0;
    f32 *y = ROW(r->y, r->y_stride, m) + at;
    for (u32 k = 0; k < cols; k += 4) {
      const u32 count = MIN(4, cols - k);
      const v128_t gate = load_some(z + k, count);
      const v128_t value = r->sigmoid ? sigmoid4(gate) : silu4(gate);
      store_some(y + k, wasm_f32x4_mul(load_some(x + k, count), value), count);
    }
    if (!norm) continue;
    const f32 scale = inverse_rms(r->gate_first ? y : x, cols, r->eps);
    for (u32 k = 0; k < cols; k++) y[k] *= scale * norm[k];
  }
}
