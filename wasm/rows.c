// The ops that work row by row: norms, activations, sums, pooling, short convolutions.
#include "ops.h"

// -- norms

u32 norm_chunks(const norm_call *r) { return divided(batch_size(r->state), UP(4096, r->cols * r->groups)); }

void norm_work(const norm_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *norm = AT(f32, r->norm), *bias = r->bias ? AT(f32, r->bias) : 0;
  f32 *centred = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    for (u32 g = 0; g < r->groups; g++) {
      const f32 *x = ROW(r->x, r->x_stride, m) + g * r->width;
      f32 *y = ROW(r->y, r->y_stride, m) + g * r->width;
      if (r->mean) {
        f32 sum = 0;
        for (u32 k = 0; k < r->cols; k++) sum += x[k];
        for (u32 k = 0; k < r->cols; k++) centred[k] = x[k] - sum / r->cols;
        x = centred;
      }
      const f32 scale = inverse_rms(x, r->cols, r->eps);
      for (u32 k = 0; k < r->cols; k++) {
        const f32 value = x[k] * scale * norm[k] + (bias ? bias[k] : 0);
        y[k] = r->add ? y[k] + value : value;
      }
    }
  }
}

u32 normalize_chunks(const normalize_call *r) { return batch_size(r->state) > 0; }

void normalize_work(const normalize_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    f32 *y = ROW(r->y, r->y_stride, m), sum = 0;
    for (u32 k = 0; k < r->cols; k++) sum += y[k] * y[k];
    const f32 scale = sum > 0 ? 1 / __builtin_sqrtf(sum) : 0;
    for (u32 k = 0; k < r->cols; k++) y[k] *= scale;
  }
}

// -- activations

INLINE v128_t gelu4(v128_t x) {
  const v128_t cubic = madd(wasm_f32x4_mul(splat(0.044715f), wasm_f32x4_mul(x, x)), splat(1), splat(1));
  const v128_t t = tanh4(wasm_f32x4_mul(wasm_f32x4_mul(splat(0.7978845608f), x), cubic));
  return wasm_f32x4_mul(wasm_f32x4_mul(splat(0.5f), x), wasm_f32x4_add(splat(1), t));
}

// By the error function: 1 - erf(z) within 1.5e-7 (Abramowitz and Stegun 7.1.26).
INLINE v128_t gelu_erf4(v128_t x) {
  const v128_t z = wasm_f32x4_mul(wasm_f32x4_abs(x), splat(0.7071067811865476f));
  const v128_t t = wasm_f32x4_div(splat(1), madd(splat(0.3275911f), z, splat(1)));
  v128_t series = splat(1.061405429f);
  series = madd(series, t, splat(-1.453152027f)), series = madd(series, t, splat(1.421413741f));
  series = madd(series, t, splat(-0.284496736f)), series = madd(series, t, splat(0.254829592f));
  const v128_t e = exp4(wasm_f32x4_neg(wasm_f32x4_mul(z, z)));
  const v128_t tail = wasm_f32x4_mul(wasm_f32x4_mul(splat(0.5f), wasm_f32x4_mul(series, t)), e);
  return wasm_f32x4_mul(x, wasm_v128_bitselect(tail, wasm_f32x4_sub(splat(1), tail), wasm_f32x4_lt(x, splat(0))));
}

INLINE v128_t hard_sigmoid4(v128_t x) {
  return wasm_f32x4_pmax(splat(0), wasm_f32x4_pmin(splat(1), wasm_f32x4_div(wasm_f32x4_add(x, splat(3)), splat(6))));
}

INLINE v128_t softplus4(v128_t x) {
  f32 lanes[4];
  wasm_v128_store(lanes, x);
  for (u32 i = 0; i < 4; i++) lanes[i] = softplus(lanes[i]);
  return wasm_v128_load(lanes);
}

INLINE v128_t activate4(u32 activation, v128_t x) {
  switch (activation) {
  case SILU: return wasm_f32x4_mul(x, sigmoid4(x));
  case GELU: return gelu4(x);
  case TANH: return tanh4(x);
  case SIGMOID: return sigmoid4(x);
  case RELU: return wasm_f32x4_pmax(splat(0), x);
  case GELU_ERF: return gelu_erf4(x);
  case GELU_QUICK: return wasm_f32x4_mul(x, sigmoid4(wasm_f32x4_mul(splat(1.702f), x)));
  case HARD_SIGMOID: return hard_sigmoid4(x);
  case SOFTPLUS: return softplus4(x);
  case SOFTPLUS2: return wasm_f32x4_div(softplus4(wasm_f32x4_mul(x, splat(0.6931471805599453f))), splat(0.6931471805599453f));
  case HARD_SWISH: return wasm_f32x4_mul(x, hard_sigmoid4(x));
  default: { // squared ReLU
    const v128_t positive = wasm_f32x4_pmax(splat(0), x);
    return wasm_f32x4_mul(positive, positive);
  }
  }
}

INLINE v128_t within4(v128_t x, f32 limit) {
  return wasm_f32x4_pmax(splat(-limit), wasm_f32x4_pmin(splat(limit), x));
}

INLINE v128_t bounded4(v128_t x, f32 most) {
  return wasm_f32x4_mul(splat(most), tanh4(wasm_f32x4_div(x, splat(most))));
}

INLINE v128_t gated4(u32 activation, f32 limit, f32 up_limit, v128_t gate, v128_t up) {
  if (activation == SITU) {
    const v128_t opened = wasm_f32x4_mul(bounded4(gate, limit), sigmoid4(gate));
    return wasm_f32x4_mul(opened, up_limit ? bounded4(up, up_limit) : up);
  }
  if (activation == CLAMPED_SILU) {
    const v128_t g = wasm_f32x4_pmin(splat(limit), gate); // before SiLU
    return wasm_f32x4_mul(wasm_f32x4_mul(g, sigmoid4(g)), within4(up, limit));
  }
  if (activation != SWIGLU_OAI) {
    const v128_t opened = activate4(activation, gate);
    if (limit) return wasm_f32x4_mul(wasm_f32x4_pmin(splat(limit), opened), within4(up, limit));
    return wasm_f32x4_mul(opened, up);
  }
  const v128_t g = wasm_f32x4_pmin(splat(7), gate);
  const v128_t clipped = within4(up, 7);
  const v128_t silu = wasm_f32x4_mul(g, sigmoid4(wasm_f32x4_mul(splat(1.702f), g)));
  return wasm_f32x4_mul(silu, wasm_f32x4_add(clipped, splat(1)));
}

// `cols` values of y from x and, if it is gated, from `up`. The limits: gated4()'s.
static void activate_row(u32 activation, f32 limit, f32 up_limit, const f32 *x, const f32 *up, f32 *y, u32 cols) {
  u32 k = 0;
  for (; k + 4 <= cols; k += 4) {
    const v128_t v = wasm_v128_load(x + k);
    wasm_v128_store(y + k, up ? gated4(activation, limit, up_limit, v, wasm_v128_load(up + k)) : activate4(activation, v));
  }
  for (; k < cols; k++) {
    const v128_t v = splat(x[k]);
    y[k] = wasm_f32x4_extract_lane(up ? gated4(activation, limit, up_limit, v, splat(up[k])) : activate4(activation, v), 0);
  }
}

// A large row is divided, too: into parts of so many values.
#define ACTIVATION_PART 1024

u32 activate_chunks(const activate_call *r) {
  return divided(batch_size(r->state) * r->repeat * UP(r->cols, ACTIVATION_PART), 1);
}

void activate_work(const activate_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 parts = UP(r->cols, ACTIVATION_PART);
  EACH_ROW(item, batch_size(r->state) * r->repeat * parts) {
    const u32 m = item / parts, first = item % parts * ACTIVATION_PART, size = MIN(ACTIVATION_PART, r->cols - first);
    const f32 *x = ROW(r->x, r->x_stride, m) + first, *gate = x;
    if (r->factors) {
      f32 *weighted = (f32 *)scratch;
      for (u32 k = 0; k < size; k++) weighted[k] = AT(f32, r->factors)[m] * x[k];
      gate = weighted;
    }
    activate_row(r->activation, r->limit, r->up_limit, gate, r->gated ? x + r->cols : 0,
                 ROW(r->y, r->y_stride, m) + first, size);
  }
}

u32 xielu_chunks(const xielu_call *r) { return divided(batch_size(r->state), 1); }

void xielu_work(const xielu_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 k = 0; k < r->cols; k++) {
      const f32 v = x[k], least = MIN(v, r->eps), series = least * (1 + least * (0.5f + least / 6));
      const f32 power = least > -0.01f ? series : exp1(least) - 1; // exp() - 1 loses its digits near 0
      y[k] = r->beta * v + (v > 0 ? v * v * r->alpha_p : (power - v) * r->alpha_n);
    }
  }
}

static u32 clamp_rows(const clamp_call *r) { return r->state ? batch_size(r->state) : 1; }

u32 clamp_chunks(const clamp_call *r) { return divided(clamp_rows(r), 4); }

void clamp_work(const clamp_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 most = AT(f32, r->limits)[0], least = AT(f32, r->limits)[1];
  EACH_ROW(m, clamp_rows(r)) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 k = 0; k < r->cols; k++) y[k] = MIN(MAX(x[k], least), most);
  }
}

u32 gate_chunks(const gate_call *r) { return batch_size(r->state) > 0; }

void gate_work(const gate_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const f32 *gate = ROW(r->x, r->x_stride, m) + r->x_first;
    if (r->span > 1) {
      f32 *repeated = (f32 *)scratch;
      for (u32 k = 0; k < r->cols; k++) repeated[k] = gate[k / r->span];
      gate = repeated;
    }
    activate_row(r->activation, 0, 0, gate, ROW(r->up, r->up_stride, m) + r->first, ROW(r->y, r->y_stride, m), r->cols);
  }
}

// -- sums and factors

u32 add_scaled_chunks(const add_scaled_call *r) { return batch_size(r->state) > 0; }

void add_scaled_work(const add_scaled_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const f32 *x = ROW(r->x, r->stride, m);
    f32 *y = ROW(r->y, r->stride, m), scale = r->scale;
    if (r->gate) scale *= wasm_f32x4_extract_lane(sigmoid4(splat(*ROW(r->gate, r->gate_stride, m))), 0);
    for (u32 k = 0; k < r->stride; k++) y[k] += scale * x[k];
  }
}

u32 scale_by_chunks(const scale_by_call *r) { return batch_size(r->state) > 0; }

void scale_by_work(const scale_by_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 factor = *AT(f32, r->factor);
  for (u32 m = 0; m < batch_size(r->state); m++) {
    f32 *x = ROW(r->x, r->stride, m);
    for (u32 k = 0; k < r->stride; k++) x[k] *= factor;
  }
}

u32 soft_cap_chunks(const soft_cap_call *r) { return (r->state ? batch_size(r->state) : 1) > 0; }

void soft_cap_work(const soft_cap_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < (r->state ? batch_size(r->state) : 1); m++) {
    f32 *y = ROW(r->y, r->stride, m);
    for (u32 k = 0; k < r->stride; k++) {
      const f32 x = y[k] * r->scale;
      y[k] = r->cap > 0 ? r->cap * wasm_f32x4_extract_lane(tanh4(splat(x / r->cap)), 0) : x;
    }
  }
}

u32 sparse_gate_chunks(const sparse_gate_call *r) { return divided(batch_size(r->state), 1); }

void sparse_gate_work(const sparse_gate_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  f32 *kept = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *gate = ROW(r->x, r->x_stride, m);
    f32 sum = 0, squares = 0;
    for (u32 k = 0; k < r->cols; k++) sum += gate[k];
    const f32 mean = sum / r->cols;
    for (u32 k = 0; k < r->cols; k++) squares += (gate[k] - mean) * (gate[k] - mean);
    const f32 least = mean + r->deviations * __builtin_sqrtf(squares / (r->cols - 1));
    for (u32 k = 0; k < r->cols; k++) kept[k] = MAX(gate[k] - least, 0);
    activate_row(r->activation, 0, 0, kept, gate + r->cols, ROW(r->y, r->y_stride, m), r->cols);
  }
}

u32 weighted_sum_chunks(const weighted_sum_call *r) { return divided(batch_size(r->state), 1); }

void weighted_sum_work(const weighted_sum_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *weights = ROW(r->weights, r->used, m);
    f32 *y = ROW(r->y, r->stride, m);
    for (u32 k = 0; k < r->cols; k++) {
      f32 sum = 0;
      for (u32 i = 0; i < r->used; i++) sum += weights[i] * ROW(r->x, r->x_stride, m * r->used + i)[k];
      y[k] += sum;
    }
  }
}

u32 add_media_chunks(const add_media_call *r) { return batch_size(r->state) > 0; }

void add_media_work(const add_media_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const u32 seq = sequence(r->state, r->per_token, m), pos = position(r->state, r->per_token, m);
    if (AT(u32, r->tokens)[seq * r->tokens_stride + pos] < FIRST_MEDIA_ID) continue;
    const f32 *media = ROW(r->media, r->media_stride, m) + r->first;
    f32 *x = ROW(r->x, r->x_stride, m);
    for (u32 k = 0; k < r->cols; k++) x[k] += media[k];
  }
}

// -- pooling

u32 pool_chunks(const pool_call *r) { return batch_size(r->state) > 0; }

void pool_work(const pool_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state);
  for (u32 m = 0, end; m < n; m = end) {
    const Segment s = segment(r->state, r->segments, m);
    for (end = m + 1; end < n && segment(r->state, r->segments, end).first == s.first;) end++;
    f32 *y = ROW(r->y, r->stride, r->kind == POOL_SPREAD ? end - 1 : s.row);
    for (u32 i = m; r->kind == POOL_SPREAD && i + 1 < end; i++) memset(ROW(r->y, r->stride, i), 0, 4 * r->stride);
    const u32 before = r->kind == POOL_SPREAD ? 0 : states(r->state)->pos + m - s.first;
    for (u32 k = 0; k < r->stride; k++) {
      if (r->kind == POOL_LAST) y[k] = ROW(r->x, r->stride, end - 1)[k];
      if (r->kind == POOL_CLS && !before) y[k] = ROW(r->x, r->stride, m)[k];
      if (r->kind != POOL_MEAN && r->kind != POOL_SPREAD) continue;
      f32 sum = 0;
      for (u32 i = m; i < end; i++) sum += ROW(r->x, r->stride, i)[k];
      if (before) sum += y[k] * before;
      y[k] = sum / (before + end - m);
    }
  }
}

// -- the rows of a diffusion model's small batch

u32 pick_rows_chunks(const pick_rows_call *r) { return batch_size(r->state) > 0; }

void pick_rows_work(const pick_rows_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const u32 row = position(r->state, r->per_token, m);
    const f32 *x = ROW(r->x, r->stride, MIN(row, r->rows - 1));
    f32 *y = ROW(r->y, r->stride, m);
    for (u32 k = 0; k < r->stride; k++) y[k] = row < r->rows ? x[k] : 0;
  }
}

// -- LFM2's short convolution

INLINE f32 conv_cached(const shortconv_call *r, u32 seq, u32 pos, u32 k) {
  const size_t at = (size_t)cache_row(r->state, r->table, r->pages, r->page, seq, pos) * r->cols + k;
  return r->halves ? half(AT(u16, r->cache)[at]) : AT(f32, r->cache)[at];
}

u32 shortconv_chunks(const shortconv_call *r) { return batch_size(r->state) > 0; }

// Writes the batch's own inputs first: what a token reads of them is rounded as the cache is.
void shortconv_work(const shortconv_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state);
  for (u32 m = 0; m < n; m++) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const size_t at = (size_t)cache_row(r->state, r->table, r->pages, r->page, seq, pos) * r->cols;
    for (u32 k = 0; k < r->cols; k++) {
      const f32 value = x[k] * x[2 * r->cols + k];
      if (r->halves) AT(u16, r->cache)[at + k] = to_half(value);
      else AT(f32, r->cache)[at + k] = value;
    }
  }
  for (u32 m = 0; m < n; m++) {
    const f32 *x = ROW(r->x, r->x_stride, m), *weights = AT(f32, r->weights);
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const u32 offset = pos - segment(r->state, r->segments, m).first;
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 k = 0; k < r->cols; k++) {
      f32 sum = x[k] * x[2 * r->cols + k] * weights[k * r->size + r->size - 1];
      for (u32 back = 1; back < r->size && back <= offset; back++)
        sum += conv_cached(r, seq, pos - back, k) * weights[k * r->size + r->size - 1 - back];
      y[k] = x[r->cols + k] * sum;
    }
  }
}

u32 shortconv_all_chunks(const shortconv_all_call *r) { return batch_size(r->state); }

void shortconv_all_work(const shortconv_all_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), half_size = r->size / 2;
  const f32 *weights = AT(f32, r->weights);
  for (u32 m = part_begin(n, chunk, chunks); m < part_begin(n, chunk + 1, chunks); m++) {
    const u32 begin = segment(r->state, r->segments, m).first;
    const f32 *own = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 k = 0; k < r->cols; k++) y[k] = 0;
    for (u32 t = 0; t < r->size; t++) {
      const u32 other = m + t - half_size; // before the batch: more than n
      if (other >= n || segment(r->state, r->segments, other).first != begin) continue;
      const f32 *x = ROW(r->x, r->x_stride, other);
      for (u32 k = 0; k < r->cols; k++) y[k] += x[k] * x[2 * r->cols + k] * weights[k * r->size + t];
    }
    for (u32 k = 0; k < r->cols; k++) y[k] *= own[r->cols + k];
  }
}

// -- adapters that control tokens switch on

u32 switch_adapters_chunks(const switch_adapters_call *r) { return divided(batch_size(r->state), 4); }

// The number of a control token, from 1 on; 0: it is none.
static u32 number_of(const switch_adapters_call *r, u32 token) {
  u32 number = 0;
  for (u32 i = 0; i < r->adapters; i++)
    if (AT(f32, r->control)[i] == (f32)token) number = i + 1;
  return number;
}

void switch_adapters_work(const switch_adapters_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const u32 last = position(r->state, r->per_token, m), at = sequence(r->state, r->per_token, m) * r->tokens_stride;
    const u32 *tokens = AT(u32, r->tokens) + at;
    f32 total = 0, found = 0, others = 0;
    for (u32 i = segment(r->state, r->segments, m).first; i <= last; i++) {
      const u32 number = number_of(r, tokens[i]);
      total += number, found += number > 0, others += number == 0;
    }
    const u32 number = number_of(r, tokens[last]);
    AT(u32, r->embedded)[at + last] = number ? (u32)AT(f32, r->control)[r->adapters + number - 1] : tokens[last];
    AT(u32, r->chosen)[m] = MIN(r->adapters, (u32)__builtin_floorf(total / (found + r->others * others) + 0.5f));
    AT(f32, r->weights)[m] = 1;
  }
}
