// Embeddings of n-grams: wgsl/embed_ngrams.wgsl and wgsl/gate_ngrams.wgsl.
#include "formats.h"
#include "ops.h"
#include "runs.h"

u32 embed_ngrams_chunks(const embed_ngrams_call *r) { return batch_size(r->state); }

// The token `back` tokens before token m.
INLINE u32 token_before(const embed_ngrams_call *r, u32 m, u32 back) {
  const u32 seq = sequence(r->state, r->per_token, m), at = position(r->state, r->per_token, m) - back;
  const u32 token = AT(u32, r->tokens)[seq * r->tokens_stride + at];
  return token >= FIRST_MEDIA_ID ? r->picture : token;
}

void embed_ngrams_work(const embed_ngrams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u64 *factors = AT(u64, r->hashes);
  const u32 *ranges = AT(u32, r->hashes) + 2 * r->longest;
  f32 *values = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    for (u32 head = 0; head < r->heads; head++) {
      u64 hash = token_before(r, m, 0) * factors[0];
      u32 ended = 0;
      for (u32 back = 1; back < 2 + head / r->per_length; back++) {
        u32 token = r->end;
        if (!ended && back <= OFFSET(r, m)) token = token_before(r, m, back);
        ended = token == r->end;
        hash ^= token * factors[back];
      }
      const u32 row = ranges[2 * head] + (u32)(hash % ranges[2 * head + 1]) - r->row0;
      if (row >= r->rows) continue;
      f32 *x = ROW(r->x, r->x_stride, m) + head * r->cols;
      const u8 *unit = AT(u8, r->w) + panel_bytes(f, r->cols) * (row / 4);
      for (u32 column = 0; column < r->cols; column += f->values, unit += f->bytes) {
        unpack(f, unit, values);
        for (u32 k = 0; k < f->values && column + k < r->cols; k++) x[column + k] = values[4 * k + row % 4];
      }
    }
  }
}

u32 gate_ngrams_chunks(const gate_ngrams_call *r) { return divided(batch_size(r->state) * r->count, 1); }

void gate_ngrams_work(const gate_ngrams_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 cols = r->cols, wide = r->count * cols;
  EACH_ROW(item, batch_size(r->state) * r->count) {
    const u32 m = item / r->count, first = item % r->count * cols;
    const f32 *key = ROW(r->key, r->key_stride, m) + first, *value = ROW(r->value, r->value_stride, m);
    const f32 *norms = AT(f32, r->norms) + first;
    f32 *stream = ROW(r->streams, r->streams_stride, m) + first, *y = ROW(r->y, r->y_stride, m) + first;
    f32 product = 0, squares = 0;
    for (u32 k = 0; k < cols; k++) product += key[k] * norms[k] * stream[k] * norms[wide + k], squares += value[k] * value[k];
    const f32 score = product * inverse_rms(key, cols, r->eps) * inverse_rms(stream, cols, r->eps) / __builtin_sqrtf(cols);
    const f32 size = score < 0 ? -score : score, root = __builtin_sqrtf(size > 1e-6f ? size : 1e-6f);
    const f32 gate = 1 / (1 + exp1(score > 0 ? -root : score < 0 ? root : 0));
    const f32 scale = gate / __builtin_sqrtf(gate * gate * squares / cols + r->eps);
    for (u32 k = 0; k < cols; k++) stream[k] += gate * value[k], y[k] = value[k] * scale * norms[2 * wide + k];
  }
}
