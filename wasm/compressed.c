// Attention to the keys of a window and to compressed keys: wgsl/window_append.wgsl, wgsl/compress.wgsl and
// wgsl/compressed_attention.wgsl.
#include "formats.h"
#include "rotation.h"

#define BLOCK 32 // keys that are read at a time

// Normalise a head by its RMS and rotate its last dimensions. `norm`: factors (size), or 0.
static void norm_rotate(const f32 *x, f32 *y, u32 size, u32 rope, const f32 *norm, f32 eps, const f32 *cosine,
                        const f32 *sine) {
  const f32 scale = inverse_rms(x, size, eps);
  for (u32 k = 0; k < size; k++) y[k] = x[k] * scale * (norm ? norm[k] : 1);
  rotate(y + size - rope, y + size - rope, rope, rope, rope, 0, cosine, sine);
}

u32 window_append_chunks(const window_append_call *r) { return divided(batch_size(r->state), 4); }

void window_append_work(const window_append_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 size = r->size, half_dim = r->rope / 2;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim, *key = sine + half_dim;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), offset = pos - segment(r->state, r->segments, m).first;
    angles(AT(u32, r->freqs), half_dim, offset, r->scale, sine, cosine);
    f32 *q = ROW(r->y, r->y_stride, m);
    const u32 seq = sequence(r->state, r->per_token, m);
    const size_t row = cache_row(r->state, r->table, r->pages, r->page, seq, pos);
    if (!r->keyed) {
      for (u32 h = 0; h < r->heads; h++, q += size)
        rotate(q + size - r->rope, q + size - r->rope, r->rope, r->rope, r->rope, 0, cosine, sine);
      memcpy(ROW(r->inputs, r->columns, row), ROW(r->x, r->x_stride, m) + r->x_first, 4 * r->columns);
      continue;
    }
    for (u32 h = 0; h < r->heads; h++, q += size) norm_rotate(q, q, size, r->rope, 0, r->eps, cosine, sine);
    const f32 *x = ROW(r->x, r->x_stride, m) + r->x_first;
    norm_rotate(x, key, size, r->rope, AT(f32, r->norm), r->eps, cosine, sine);
    store_row(r->k, r->halves, row * size, key, size);
    if (r->columns) memcpy(ROW(r->inputs, r->columns, row), x + size, 4 * r->columns);
  }
}

// Unpack four rows of a matrix to floats, column by column: (cols, 4).
static void read_panel(const Format *f, const u8 *unit, u32 cols, f32 *to) {
  for (u32 column = 0; column < cols; column += f->values, unit += f->bytes) unpack(f, unit, to + 4 * column);
}

u32 compress_chunks(const compress_call *r) { return divided(batch_size(r->state), 4); }

void compress_work(const compress_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 size = r->size, ratio = r->ratio, cols = size * (1 + r->overlaps), half_dim = r->rope / 2;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim, *tops = sine + half_dim, *totals = tops + size;
  f32 *key = totals + size, *panel = key + size;
  const Format *f = &formats[r->type];
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    const u32 count = pos + 1 - segment(r->state, r->segments, m).first;
    if (count % ratio) continue;
    for (u32 k = 0; k < size; k++) key[k] = totals[k] = 0, tops[k] = -__builtin_inff();
    for (u32 again = 0; again < 2; again++) { // first the largest scores, then the sums
      for (u32 back = r->overlaps ? MIN(2 * ratio, count) : ratio; back > 0; back--) {
        const u32 row = cache_row(r->state, r->table, r->pages, r->page, seq, pos + 1 - back);
        const u32 first = r->overlaps && back <= ratio ? size : 0; // of the values for this key
        const f32 *values = ROW(r->inputs, 2 * cols, row) + first, *scores = values + cols;
        const u32 place = (2 * ratio - back) % ratio; // among its key's positions
        if (place % 4 == 0) read_panel(f, AT(u8, r->w) + panel_bytes(f, cols) * (place / 4), cols, panel);
        const f32 *terms = panel + 4 * first + place % 4;
        for (u32 k = 0; k < size; k++) {
          if (!again) {
            tops[k] = MAX(tops[k], scores[k] + terms[4 * k]);
            continue;
          }
          const f32 e = exp1(scores[k] + terms[4 * k] - tops[k]);
          totals[k] += e, key[k] += e * values[k];
        }
      }
    }
    for (u32 k = 0; k < size; k++) key[k] /= totals[k];
    angles(AT(u32, r->freqs), half_dim, count - ratio, r->scale, sine, cosine);
    norm_rotate(key, key, size, r->rope, AT(f32, r->norm), r->eps, cosine, sine);
    store_row(r->c, r->halves, KEY_AT(r, seq, pos), key, size);
  }
}

// What a token attends to: keys of the window, `near` of them, then compressed ones.
typedef struct {
  const compressed_attention_call *r;
  u32 seq, begin, end, near;
} Keys;

// Copy keys as floats, (n, size).
static void read_keys(const Keys *c, u32 first, u32 n, f32 *to) {
  const compressed_attention_call *r = c->r;
  for (u32 k = first; k < first + n; k++, to += r->size) {
    const u32 is_near = k < c->near, cache = is_near ? r->k : r->c;
    const u32 pos = is_near ? c->end - c->near + k : c->begin + (k - c->near + 1) * r->ratio - 1;
    const size_t at = is_near ? (size_t)cache_row(r->state, r->table, r->pages, r->page, c->seq, pos) * r->size
                              : KEY_AT(r, c->seq, pos);
    if (!r->halves) memcpy(to, AT(f32, cache) + at, 4 * r->size);
    for (u32 i = 0; r->halves && i < r->size; i += 4) wasm_v128_store(to + i, finite_halves(AT(u16, cache) + at + i));
  }
}

u32 compressed_attention_chunks(const compressed_attention_call *r) { return divided(batch_size(r->state) * r->heads, 1); }

// An item is a head of a token. Each head reads the keys again.
void compressed_attention_work(const compressed_attention_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 size = r->size, half_dim = r->rope / 2;
  f32 *cosine = (f32 *)scratch, *sine = cosine + half_dim, *keys = sine + half_dim;
  EACH_ROW(item, batch_size(r->state) * r->heads) {
    const u32 m = item / r->heads, head = item % r->heads, end = position(r->state, r->per_token, m) + 1;
    const u32 begin = segment(r->state, r->segments, m).first;
    const Keys c = {r, sequence(r->state, r->per_token, m), begin, end, MIN(r->window, end - begin)};
    const u32 count = c.near + (r->ratio ? (end - begin) / r->ratio : 0);
    const f32 *q = ROW(r->q, r->q_stride, m) + head * size;
    f32 *y = ROW(r->y, r->y_stride, m) + head * size, top = AT(f32, r->sinks)[head], total = 1;
    memset(y, 0, 4 * size);
    for (u32 first = 0; first < count; first += BLOCK) {
      const u32 n = MIN(BLOCK, count - first), *mask = AT(u32, r->mask) + (size_t)r->mask_words * m;
      f32 scores[BLOCK], new_top = top;
      read_keys(&c, first, n, keys);
      for (u32 j = 0; j < n; j++) {
        v128_t sum = splat(0);
        for (u32 k = 0; k < size; k += 4) sum = madd(wasm_v128_load(q + k), wasm_v128_load(keys + j * size + k), sum);
        scores[j] = r->scale * sum4(sum);
        if (r->mask_words && first + j >= c.near) {
          const u32 last = begin + (first + j - c.near + 1) * r->ratio - 1;
          if (!(mask[last / 32] >> last % 32 & 1)) scores[j] = -__builtin_inff();
        }
        new_top = MAX(new_top, scores[j]);
      }
      const f32 rescale = exp1(top - new_top);
      top = new_top, total *= rescale;
      for (u32 k = 0; k < size; k++) y[k] *= rescale;
      for (u32 j = 0; j < n; j++) {
        const f32 weight = exp1(scores[j] - top);
        total += weight;
        for (u32 k = 0; k < size; k += 4)
          wasm_v128_store(y + k, madd(splat(weight), wasm_v128_load(keys + j * size + k), wasm_v128_load(y + k)));
      }
    }
    for (u32 k = 0; k < size; k++) y[k] /= total;
    angles(AT(u32, r->freqs), half_dim, begin - (end - 1), 1, sine, cosine); // back
    rotate(y + size - r->rope, y + size - r->rope, r->rope, r->rope, r->rope, 0, cosine, sine);
  }
}
