// The input of a layer that predicts the token after the next one, the hidden states that it needs, and the logits of a draft
// model with fewer tokens. wgsl/mtp_input.wgsl, store_hidden.wgsl and map_logits.wgsl are the same on the GPU.
#include "ops.h"
#include "runs.h"

static f32 *ring_at(const mtp_input_call *r, u32 m, u32 back) {
  const u32 pos = position(r->state, r->per_token, m) - back, seq = sequence(r->state, r->per_token, m);
  return ROW(r->ring, r->cols, seq * r->ring_rows + pos % r->ring_rows);
}

// The hidden state before token m; none before a sequence's first.
static const f32 *hidden_before(const mtp_input_call *r, u32 m, u32 begins) {
  if (!OFFSET(r, m)) return 0;
  if (r->source == HIDDEN_OWN) return ROW(r->hidden, r->x_stride, m);
  return r->source == HIDDEN_RING || begins ? ring_at(r, m, 1) : ROW(r->hidden, r->x_stride, m - 1);
}

u32 mtp_input_chunks(const mtp_input_call *r) { return divided(batch_size(r->state), UP(4096, r->cols)); }

void mtp_input_work(const mtp_input_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *norm = AT(f32, r->norm);
  const u32 cols = r->cols;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 begins = begins_run(r->state, r->per_token, m);
    const f32 *e = ROW(r->e, r->x_stride, m), *h = hidden_before(r, m, begins);
    f32 *y = ROW(r->y, r->y_stride, m);
    if (r->residual == RESIDUAL_RAW)
      for (u32 k = 0; k < cols; k++) ROW(r->x, r->x_stride, m)[k] = h ? h[k] : 0;
    if (r->norm) {
      const f32 scale_e = inverse_rms(e, cols, r->eps), scale_h = h ? inverse_rms(h, cols, r->eps) : 0;
      for (u32 k = 0; k < cols; k++) y[k] = e[k] * scale_e * norm[k];
      for (u32 k = 0; k < cols; k++) y[cols + k] = h ? h[k] * scale_h * norm[cols + k] : 0;
    } else {
      for (u32 k = 0; k < cols; k++) y[k] = e[k], y[cols + k] = h ? h[k] : 0;
    }
    if (r->residual == RESIDUAL_NORMED) // which may be where h is
      for (u32 k = 0; k < cols; k++) ROW(r->x, r->x_stride, m)[k] = y[cols + k];
    for (u32 k = cols; r->residual && k < r->x_stride; k++) ROW(r->x, r->x_stride, m)[k] = 0;
    for (u32 k = 2 * cols; k < r->y_stride; k++) y[k] = 0;
    if (r->source != HIDDEN_BATCH || !begins) continue;
    const u32 end = run_end(r->state, r->per_token, m); // no other row reads what this one writes
    for (u32 last = end > m + r->ring_rows ? end - r->ring_rows : m; last < end; last++)
      for (u32 k = 0; k < cols; k++) ring_at(r, last, 0)[k] = ROW(r->hidden, r->x_stride, last)[k];
  }
}

u32 store_hidden_chunks(const store_hidden_call *r) { return divided(batch_size(r->state), UP(4096, r->cols)); }

void store_hidden_work(const store_hidden_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *norm = AT(f32, r->norm);
  EACH_ROW(m, batch_size(r->state)) {
    if (run_end(r->state, r->per_token, m) > m + r->ring_rows) continue;
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const f32 *x = ROW(r->x, r->x_stride, m), scale = inverse_rms(x, r->cols, r->eps);
    f32 *to = ROW(r->ring, r->cols, seq * r->ring_rows + pos % r->ring_rows);
    for (u32 k = 0; k < r->cols; k++) to[k] = x[k] * scale * norm[k];
  }
}

u32 map_logits_chunks(const map_logits_call *r) { return batch_size(r->state) > 0; }

void map_logits_work(const map_logits_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 *rows = AT(u32, r->token_rows);
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 t = 0; t < r->cols; t++) y[t] = rows[t] < r->rows ? x[rows[t]] : BANNED;
  }
}
