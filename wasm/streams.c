// Several residual streams: wgsl/altup_predict.wgsl, wgsl/laurel.wgsl, wgsl/merge_streams.wgsl and others.
#include "ops.h"

// The router's choice for a token: a number for each stream.
static void route_streams(const f32 *router, u32 count, f32 scale, f32 *chosen) {
  for (u32 s = 0; s < count; s++) chosen[s] = wasm_f32x4_extract_lane(tanh4(splat(scale * router[s])), 0);
}

INLINE f32 dot_row(const f32 *factors, const f32 *chosen, u32 count) {
  f32 sum = 0;
  for (u32 i = 0; i < count; i++) sum += factors[i] * chosen[i];
  return sum;
}

u32 altup_predict_chunks(const altup_predict_call *r) { return divided(batch_size(r->state), 1); }

void altup_predict_work(const altup_predict_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 count = r->count, cols = r->cols;
  f32 *chosen = (f32 *)scratch, *old = chosen + count, *factors = old + count;
  EACH_ROW(m, batch_size(r->state)) {
    f32 *x = ROW(r->x, cols, m), *y = ROW(r->y, count * cols, m);
    route_streams(ROW(r->router, r->router_stride, m), count, r->scale, chosen);
    for (u32 i = 0; i < count * count; i++) factors[i] = dot_row(AT(f32, r->factors) + i * count, chosen, count);
    for (u32 k = 0; k < cols; k++) {
      for (u32 s = 0; s < count; s++) old[s] = y[s * cols + k];
      for (u32 s = 0; s < count; s++) y[s * cols + k] = old[s] + dot_row(factors + s * count, old, count);
      x[k] = y[k];
    }
  }
}

u32 altup_correct_chunks(const altup_correct_call *r) { return divided(batch_size(r->state), 1); }

void altup_correct_work(const altup_correct_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 count = r->count, cols = r->cols;
  f32 *chosen = (f32 *)scratch, *factors = chosen + count;
  EACH_ROW(m, batch_size(r->state)) {
    f32 *x = ROW(r->x, cols, m), *y = ROW(r->y, count * cols, m), *scaled = ROW(r->scaled, cols, m);
    route_streams(ROW(r->router, r->router_stride, m), count, r->scale, chosen);
    for (u32 s = 0; s < count; s++) factors[s] = 1 + dot_row(AT(f32, r->factors) + s * count, chosen, count);
    for (u32 k = 0; k < cols; k++) {
      const f32 change = x[k] - y[k];
      for (u32 s = 0; s < count; s++) y[s * cols + k] += factors[s] * change;
      x[k] = y[k];
      scaled[k] = y[k] * AT(f32, r->weights)[k];
    }
  }
}

// Attention beside a low-rank residual (wgsl/laurel.wgsl).
u32 laurel_chunks(const laurel_call *r) { return divided(batch_size(r->state), 1); }

void laurel_work(const laurel_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *norms = AT(f32, r->norms);
  EACH_ROW(m, batch_size(r->state)) {
    const u32 cols = r->cols;
    f32 *x = ROW(r->x, r->stride, m), *attended = ROW(r->attended, r->stride, m), *low = ROW(r->low, r->stride, m);
    const f32 a = inverse_rms(x, cols, r->eps), b = inverse_rms(attended, cols, r->eps);
    const f32 c = inverse_rms(low, cols, r->eps);
    for (u32 k = 0; k < cols; k++) {
      const f32 others = attended[k] * b * norms[cols + k] + low[k] * c * norms[2 * cols + k];
      x[k] = (x[k] + x[k] * a * norms[k] + others) * 0.70710678118654752f;
    }
  }
}

u32 copy_columns_chunks(const copy_columns_call *r) { return divided(batch_size(r->state) * r->parts, 1); }

void copy_columns_work(const copy_columns_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(item, batch_size(r->state) * r->parts) {
    const u32 m = item / r->parts, part = item % r->parts;
    const f32 *x = ROW(r->x, r->x_stride, m) + r->x_first + part * r->x_step;
    f32 *y = ROW(r->y, r->y_stride, m) + r->y_first + part * r->y_step, factor = r->scale;
    if (r->like) {
      const f32 *like = ROW(r->like, r->like_stride, m);
      f32 own = 0, wanted = 0;
      for (u32 k = 0; k < r->cols; k++) own += x[k] * x[k], wanted += like[k] * like[k];
      factor *= own > 0 ? __builtin_sqrtf(wanted / own) : 0;
    }
    for (u32 k = 0; k < r->cols; k++) y[k] = r->add ? y[k] + factor * x[k] : factor * x[k];
  }
}

// A stream's weight of the part that counts (wgsl/lib/stream_weight.wgsl).
#define STREAM_WEIGHT(r, products, s) \
  ((r)->factor * sigmoid1((products)[(r)->part * (r)->count + s] * AT(f32, (r)->terms)[(r)->part] + \
                          AT(f32, (r)->terms)[(r)->parts + (r)->part * (r)->count + s]) + (r)->eps)

INLINE f32 sigmoid1(f32 x) { return wasm_f32x4_extract_lane(sigmoid4(splat(x)), 0); }

u32 merge_streams_chunks(const merge_streams_call *r) { return divided(batch_size(r->state), 1); }

void merge_streams_work(const merge_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *streams = ROW(r->streams, r->streams_stride, m), *products = ROW(r->products, r->products_stride, m);
    f32 *y = ROW(r->y, r->stride, m);
    for (u32 k = 0; k < r->cols; k++) y[k] = 0;
    for (u32 s = 0; s < r->count; s++) {
      const f32 weight = STREAM_WEIGHT(r, products, s);
      for (u32 k = 0; k < r->cols; k++) y[k] += weight * streams[s * r->cols + k];
    }
  }
}

u32 spread_streams_chunks(const spread_streams_call *r) { return divided(batch_size(r->state), 1); }

void spread_streams_work(const spread_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->stride, m), *products = ROW(r->products, r->products_stride, m);
    f32 *streams = ROW(r->streams, r->streams_stride, m);
    for (u32 s = 0; s < r->count; s++) {
      const f32 weight = STREAM_WEIGHT(r, products, s);
      for (u32 k = 0; k < r->cols; k++) streams[s * r->cols + k] += weight * x[k];
    }
  }
}

// Streams mixed with each other (wgsl/remix_streams.wgsl).
u32 remix_streams_chunks(const remix_streams_call *r) { return divided(batch_size(r->state), 1); }

INLINE f32 stream_term(const remix_streams_call *r, const f32 *products, u32 at, u32 part) {
  return products[at] * AT(f32, r->terms)[part] + AT(f32, r->terms)[3 + at];
}

// Divide `count` weights, `step` apart, by their sum.
INLINE void normalise_weights(f32 *weights, u32 count, u32 step, f32 eps) {
  f32 sum = eps;
  for (u32 k = 0; k < count; k++) sum += weights[k * step];
  for (u32 k = 0; k < count; k++) weights[k * step] /= sum;
}

void remix_streams_work(const remix_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 count = r->count, cols = r->cols;
  f32 *weights = (f32 *)scratch, *added = weights + count * count, *old = added + count; // of stream s in stream d
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->stride, m), *products = ROW(r->products, r->products_stride, m);
    f32 *streams = ROW(r->streams, r->streams_stride, m);
    for (u32 s = 0; s < count; s++) {
      f32 *own = weights + s * count, top = -3.4e38f;
      added[s] = 2 * sigmoid1(stream_term(r, products, count + s, 1));
      for (u32 d = 0; d < count; d++) {
        own[d] = stream_term(r, products, (2 + s) * count + d, 2);
        top = MAX(top, own[d]);
      }
      for (u32 d = 0; d < count; d++) own[d] = exp1(own[d] - top);
      normalise_weights(own, count, 1, 0);
      for (u32 d = 0; d < count; d++) own[d] += r->eps;
    }
    for (u32 round = 0; round < r->rounds; round++) {
      for (u32 s = 0; s < count && round; s++) normalise_weights(weights + s * count, count, 1, r->eps);
      for (u32 d = 0; d < count; d++) normalise_weights(weights + d, count, count, r->eps);
    }
    for (u32 k = 0; k < cols; k++) {
      for (u32 s = 0; s < count; s++) old[s] = streams[s * cols + k];
      for (u32 d = 0; d < count; d++) {
        f32 sum = added[d] * x[k];
        for (u32 s = 0; s < count; s++) sum += weights[s * count + d] * old[s];
        streams[d * cols + k] = sum;
      }
    }
  }
}

// The norm of each stream, with weights of its own (wgsl/norm_streams.wgsl).
u32 norm_streams_chunks(const norm_streams_call *r) { return divided(batch_size(r->state) * r->count, 1); }

void norm_streams_work(const norm_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(item, batch_size(r->state) * r->count) {
    const u32 m = item / r->count, first = item % r->count * r->cols;
    const f32 *x = ROW(r->x, r->x_stride, m) + first, *norm = AT(f32, r->norm) + first;
    f32 *y = ROW(r->y, r->y_stride, m) + first;
    const f32 factor = r->scale * inverse_rms(x, r->cols, r->eps);
    for (u32 k = 0; k < r->cols; k++) y[k] = x[k] * factor * norm[k];
  }
}

// The sum of streams, gated (wgsl/mix_streams.wgsl).
u32 mix_streams_chunks(const mix_streams_call *r) { return divided(batch_size(r->state), 1); }

void mix_streams_work(const mix_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->x_stride, m), *gates = ROW(r->gates, r->gates_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 k = 0; k < r->cols; k++) {
      f32 sum = 0;
      for (u32 at = k; at < r->count * r->cols; at += r->cols) sum += x[at] * sigmoid1(gates[at]);
      y[k] = sum;
    }
  }
}

// The mean of stored streams and of x (wgsl/attend_streams.wgsl).
u32 attend_streams_chunks(const attend_streams_call *r) { return divided(batch_size(r->state), 1); }

void attend_streams_work(const attend_streams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *scores = AT(f32, r->scores);
  f32 *weights = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *stored = ROW(r->stored, r->stored_stride, m), *x = ROW(r->x, r->stride, m);
    f32 *y = ROW(r->y, r->stride, m), top = -1e30f, total = 0;
    for (u32 s = 0; s <= r->count; s++) {
      const f32 *stream = s < r->count ? stored + s * r->cols : x;
      f32 product = 0;
      for (u32 k = 0; k < r->cols; k++) product += stream[k] * scores[k];
      weights[s] = product * inverse_rms(stream, r->cols, r->eps);
      top = MAX(top, weights[s]);
    }
    for (u32 s = 0; s <= r->count; s++) total += weights[s] = exp1(weights[s] - top);
    for (u32 k = 0; k < r->cols; k++) y[k] = weights[r->count] / total * x[k];
    for (u32 s = 0; s < r->count; s++)
      for (u32 k = 0; k < r->cols; k++) y[k] += weights[s] / total * stored[s * r->cols + k];
  }
}
