// Keys and values on their way into the caches: norms of heads, rotation (RoPE), rows of the caches.
#include "kv_cache.h"
#include "rotation.h"

// Multiply rows of heads by weights: those of each head, or one head's for all.
static void scale_heads(f32 *x, u32 rows, u32 head_dim, u32 per_head, const f32 *weights) {
  for (u32 i = 0; i < rows; i++) x[i] *= weights[per_head ? i : i % head_dim];
}

u32 rope_chunks(const rope_call *r) { return divided(batch_size(r->state), 4); }

void rope_work(const rope_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 *freqs = AT(u32, r->freqs), half_dim = r->rope_dim / 2;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim, *key = sine + half_dim;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = anchored_position(r->state, r->per_token, r->anchor, m);
    const u32 offset = pos - segment(r->state, r->segments, m).first;
    const i32 shift = r->mrope ? (i32)tables(r->state)[r->shifts + sequence(r->state, r->per_token, m)] : 0;
    for (u32 i = 0; i < half_dim; i++) {
      // after its frequencies, the table has the axes of M-RoPE
      const u32 place = r->mrope && r->records ? media_record(r->state, r->records, m)->places[freqs[half_dim + i]]
                                               : offset + shift;
      sine_cosine(r->turns ? freqs[m * half_dim + i] : place * freqs[i], sine + i, cosine + i);
      sine[i] *= r->scale, cosine[i] *= r->scale;
    }
    const f32 *x = ROW(r->x, r->x_stride, m);
    if (r->kv_rows) {
      const u32 seq = sequence(r->state, r->per_token, m);
      const u32 row = r->staged ? m : cache_row(r->state, r->table, r->pages, r->page, seq, pos);
      rotate(x + r->q_rows, key, r->kv_rows, r->head_dim, r->rope_dim, r->neox, cosine, sine);
      if (r->after)
        scale_heads(key, r->kv_rows, r->head_dim, r->per_head,
                    AT(f32, r->after) + (r->per_head ? r->q_rows : r->head_dim));
      store_row(r->k, r->halves, (size_t)row * r->kv_rows, key, r->kv_rows);
      store_row(r->v, r->halves, (size_t)row * r->kv_rows, x + r->q_rows + r->kv_rows, r->kv_rows);
    }
    f32 *y = ROW(r->y, r->y_stride, m);
    rotate(x, y, r->q_rows, r->head_dim, r->rope_dim, r->neox, cosine, sine);
    if (r->after) scale_heads(y, r->q_rows, r->head_dim, r->per_head, AT(f32, r->after));
  }
}

// Rotate `dim` values by pairs, which become neighbours.
static void rotate_pairs(const f32 *x, f32 *y, u32 dim, u32 neox, const f32 *cosine, const f32 *sine) {
  for (u32 i = 0; i < dim / 2; i++) {
    const f32 a = x[neox ? i : 2 * i], b = x[neox ? i + dim / 2 : 2 * i + 1];
    y[2 * i] = a * cosine[i] - b * sine[i], y[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

u32 latent_append_chunks(const latent_append_call *r) { return divided(batch_size(r->state), 4); }

void latent_append_work(const latent_append_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 *freqs = AT(u32, r->freqs), half = r->rope / 2, width = r->rope + r->rank;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half, *key = sine + half;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), offset = pos - segment(r->state, r->segments, m).first;
    angles(freqs, half, offset, r->scale, sine, cosine);
    for (u32 h = 0; h < r->heads; h++)
      rotate_pairs(ROW(r->q, r->q_stride, m) + h * (r->nope + r->rope) + r->nope,
                   ROW(r->y, r->y_stride, m) + h * width, r->rope, r->neox, cosine, sine);
    const f32 *latent = ROW(r->kv, r->kv_stride, m), *norm = AT(f32, r->norm);
    rotate_pairs(latent + r->rank, key, r->rope, r->neox, cosine, sine);
    const f32 scale = inverse_rms(latent, r->rank, r->eps);
    for (u32 k = 0; k < r->rank; k++) key[r->rope + k] = latent[k] * scale * norm[k];
    const u32 seq = sequence(r->state, r->per_token, m);
    const u32 row = cache_row(r->state, r->table, r->pages, r->page, seq, pos);
    store_row(r->k, r->halves, (size_t)row * width, key, width);
  }
}

u32 head_norm_chunks(const head_norm_call *r) { return divided(batch_size(r->state), 4); }

enum { SINGLE = 2 };  // per_head: each query head has a single weight, and keys have none

// Normalise `width` values in place.
static void norm_part(const head_norm_call *r, f32 *x, u32 width, const f32 *norm, const f32 *bias) {
  if (r->mean && norm) {
    f32 sum = 0;
    for (u32 k = 0; k < width; k++) sum += x[k];
    for (u32 k = 0; k < width; k++) x[k] -= sum / width;
  }
  const f32 scale = inverse_rms(x, width, r->eps);
  for (u32 k = 0; k < width; k++) x[k] = x[k] * scale * (norm ? norm[k] : 1) + (bias ? bias[k] : 0);
}

void head_norm_work(const head_norm_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    f32 *x = ROW(r->x, r->x_stride, m);
    for (u32 keys = 0; keys < 2; keys++) {
      if (r->alone && keys != r->alone - 1) continue;
      const u32 first = keys ? r->q_rows : 0, rows = keys ? r->kv_rows : r->q_rows;
      const u32 width = r->across_heads ? rows : r->head_dim;
      for (u32 at = 0; at < rows; at += width) {
        if (r->per_head == SINGLE) {
          norm_part(r, x + first + at, width, 0, 0);
          for (u32 k = 0; !keys && k < width; k++) x[at + k] *= AT(f32, r->norm)[at / width];
          continue;
        }
        const u32 w = r->per_head ? first + at : keys * r->head_dim;
        norm_part(r, x + first + at, width, r->norm ? AT(f32, r->norm) + w : 0, r->bias ? AT(f32, r->bias) + w : 0);
      }
    }
    for (u32 at = 0; r->norm_values && at < r->kv_rows; at += r->head_dim)
      norm_part(r, x + r->q_rows + r->kv_rows + at, r->head_dim, 0, 0);
  }
}

u32 kv_quantize_chunks(const kv_quantize_call *r) { return divided(batch_size(r->state), 8); }

void kv_quantize_work(const kv_quantize_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const u32 row = cache_row(r->state, r->table, r->pages, r->page, seq, pos);
    for (u32 values = 0; values < 2; values++) {
      const f32 *x = ROW(values ? r->v_new : r->k_new, r->cols, m);
      const u32 cache = values ? r->v : r->k;
      i8 *to = quantized_row(cache, row, r->page, r->cols);
      f32 *scales = row_scales(cache, row, r->page, r->cols);
      for (u32 g = 0; g < r->cols / 32; g++, x += 32, to += 32) {
        f32 largest = 0;
        for (u32 k = 0; k < 32; k++) largest = MAX(largest, __builtin_fabsf(x[k]));
        const f32 inverse = largest > 0 ? 1 / largest : 0;
        for (u32 k = 0; k < 32; k++) to[k] = (i8)__builtin_floorf(0.5f + 127 * (x[k] * inverse));
        scales[g] = largest;
      }
    }
  }
}

// Normalise a row in place.
static void norm_row(f32 *x, u32 size, const f32 *norm, f32 eps) {
  const f32 scale = inverse_rms(x, size, eps);
  for (u32 k = 0; k < size; k++) x[k] *= scale * norm[k];
}

u32 index_append_chunks(const index_append_call *r) { return divided(batch_size(r->state), 4); }

void index_append_work(const index_append_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 *freqs = AT(u32, r->freqs), half_dim = r->rope / 2, size = r->size;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim, *key = sine + half_dim;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), offset = pos - segment(r->state, r->segments, m).first;
    angles(freqs, half_dim, offset, r->scale, sine, cosine);
    f32 *q = ROW(r->y, r->y_stride, m);
    if (r->raw)
      for (u32 h = 0; h < r->heads; h++) norm_row(q + h * r->size, size, AT(f32, r->norm), r->eps);
    for (f32 *head = q + r->first; head < q + r->heads * size; head += size)
      rotate(head, head, r->rope, r->rope, r->rope, r->neox, cosine, sine);
    const f32 *x = ROW(r->x, r->x_stride, m), *norm = AT(f32, r->norm);
    const u32 seq = sequence(r->state, r->per_token, m);
    const size_t to = (size_t)cache_row(r->state, r->table, r->pages, r->page, seq, pos) * r->row;
    if (r->raw) {
      store_row(r->k, 0, to, x, size);
      continue;
    }
    f32 mean = 0;
    for (u32 k = 0; k < size; k++) mean += x[k];
    for (u32 k = 0; k < size; k++) key[k] = x[k] - mean / size;
    const f32 scale = inverse_rms(key, size, r->eps);
    for (u32 k = 0; k < size; k++) key[k] = key[k] * scale * norm[k] + norm[size + k];
    rotate(key + r->first, key + r->first, r->rope, r->rope, r->rope, r->neox, cosine, sine);
    store_row(r->k, 0, to, key, size);
    if (r->row > size) store_row(r->k, 0, to + size, x + size, size); // gates
  }
}

u32 index_join_raw_chunks(const index_join_raw_call *r) { return divided(batch_size(r->state), 4); }

void index_join_raw_work(const index_join_raw_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 *freqs = AT(u32, r->freqs), half_dim = r->rope / 2, size = r->size;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const u32 count = pos + 1 - segment(r->state, r->segments, m).first;
    if (count % r->pool) continue;
    angles(freqs, half_dim, count - r->pool, r->scale, sine, cosine);
    f32 *key = ROW(r->k, r->row, cache_row(r->state, r->table, r->pages, r->page, seq, pos)) + size;
    memset(key, 0, 4 * size);
    for (u32 i = 0; i < r->pool; i++) {
      const u32 row = cache_row(r->state, r->table, r->pages, r->page, seq, pos + 1 - r->pool + i);
      for (u32 k = 0; k < size; k++) key[k] += ROW(r->k, r->row, row)[k];
    }
    for (u32 k = 0; k < size; k++) key[k] /= r->pool;
    norm_row(key, size, AT(f32, r->norm) + size, r->eps);
    rotate(key + r->first, key + r->first, r->rope, r->rope, r->rope, r->neox, cosine, sine);
  }
}
