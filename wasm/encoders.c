// Ops on whole rows that encoders of pictures and sound need (py_engine/plan/rows.py).
#include "formats.h"
#include "ops.h"

typedef struct {
  u32 row;
  f32 weight;
} Tap; // a row of a table that takes part in a row of the result

// A row of a matrix as floats. `values`: memory of a unit.
static void matrix_row(const Format *f, u32 w, u32 cols, u32 row, f32 *to, f32 *values) {
  const u8 *unit = AT(u8, w) + panel_bytes(f, cols) * (row / 4);
  for (u32 column = 0; column < cols; column += f->values, unit += f->bytes) {
    unpack(f, unit, values);
    for (u32 k = 0; k < f->values; k++) to[column + k] = values[4 * k + row % 4];
  }
}

INLINE void add_scaled_row(f32 *y, const f32 *x, f32 scale, u32 cols) {
  u32 k = 0;
  for (; k + 4 <= cols; k += 4) wasm_v128_store(y + k, madd(splat(scale), wasm_v128_load(x + k), wasm_v128_load(y + k)));
  for (; k < cols; k++) y[k] += scale * x[k];
}

u32 patches_chunks(const patches_call *r) { return divided(batch_size(r->state), 8); }

void patches_work(const patches_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 side = r->side, size = side * side;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 first = AT(u32, r->places)[2 * m], stride = AT(u32, r->places)[2 * m + 1];
    f32 *y = ROW(r->y, r->y_stride, m);
    if (!stride) memset(y, 0, 4 * 3 * size); // no patch
    for (u32 c = 0; stride && c < 3; c++)
      for (u32 dy = 0; dy < side; dy++)
        for (u32 dx = 0; dx < side; dx++)
          y[c * size + dy * side + dx] = AT(f32, r->values)[256 * c + AT(u8, r->pixels)[first + dy * stride + 3 * dx + c]];
  }
}

u32 gather_chunks(const gather_call *r) { return divided(batch_size(r->state), UP(4096, r->cols * r->count)); }

void gather_work(const gather_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  f32 *row = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    f32 *y = ROW(r->y, r->y_stride, m) + r->first;
    const Tap *taps = AT(Tap, r->taps) + m * r->taps_stride + r->tap0;
    if (!r->add) memset(y, 0, 4 * r->cols);
    for (u32 t = 0; t < r->count; t++) {
      const u32 at = taps[t].row - r->row0;
      if (taps[t].weight == 0 || at >= r->rows) continue;
      if (!r->plain_stride) matrix_row(f, r->w, r->cols, at, row, row + r->cols);
      add_scaled_row(y, r->plain_stride ? ROW(r->w, r->plain_stride, at) : row, taps[t].weight, r->cols);
    }
  }
}

u32 nearest_code_chunks(const nearest_code_call *r) { return divided(batch_size(r->state), 16); }

// wgsl/nearest_code.wgsl describes it. A tap's weight is the best score until all codes were compared.
void nearest_code_work(const nearest_code_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u32 n = batch_size(r->state), cols = r->cols;
  f32 *code = (f32 *)scratch;
  Tap *taps = AT(Tap, r->taps) + r->tap;
  EACH_ROW(m, n) taps[m * r->taps_stride] = (Tap){0, -__builtin_inff()};
  for (u32 c = 0; c < r->codes; c++) {
    matrix_row(f, r->w, cols, c, code, code + cols);
    EACH_ROW(m, n) {
      const f32 *x = ROW(r->x, r->x_stride, m);
      f32 score = 0;
      for (u32 k = 0; k < cols; k++) score += code[k] * (2 * x[k] - code[k]);
      if (score > taps[m * r->taps_stride].weight) taps[m * r->taps_stride] = (Tap){c, score};
    }
  }
  EACH_ROW(m, n) {
    Tap *tap = taps + m * r->taps_stride;
    matrix_row(f, r->w, cols, tap->row, code, code + cols);
    add_scaled_row(ROW(r->x, r->x_stride, m), code, -1, cols);
    *tap = (Tap){r->row0 + tap->row, 1};
  }
}

u32 unfold_chunks(const unfold_call *r) { return divided(batch_size(r->state), UP(4096, r->cols * r->count)); }

void unfold_work(const unfold_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 t = 0; t < r->count; t++) {
      const Tap tap = AT(Tap, r->taps)[m * r->count + t];
      const f32 *x = ROW(r->x, r->x_stride, tap.weight == 0 ? 0 : tap.row);
      for (u32 c = 0; c < r->cols; c++) y[c * r->count + t] = tap.weight == 0 ? 0 : tap.weight * x[c];
    }
  }
}

u32 shift_scale_chunks(const shift_scale_call *r) { return divided(batch_size(r->state), UP(4096, r->cols)); }

void shift_scale_work(const shift_scale_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *shift = r->shift ? AT(f32, r->shift) : 0, *factor = AT(f32, r->factor);
  EACH_ROW(m, batch_size(r->state)) {
    f32 *x = ROW(r->x, r->x_stride, m);
    for (u32 k = 0; k < r->cols; k++) x[k] = (shift ? x[k] - shift[k] : x[k]) * factor[k];
    memset(x + r->cols, 0, 4 * (r->x_stride - r->cols));
  }
}

// Few parts: each converts the whole matrix.
u32 matmul_transposed_chunks(const matmul_transposed_call *r) { return divided(batch_size(r->state), 64); }

void matmul_transposed_work(const matmul_transposed_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state);
  f32 *row = (f32 *)scratch;
  EACH_ROW(m, n) memset(ROW(r->y, r->y_stride, m), 0, 4 * r->cols);
  for (u32 k = 0; k < r->rows; k++) {
    matrix_row(&formats[r->type], r->w, r->cols, k, row, row + r->cols);
    EACH_ROW(m, n) add_scaled_row(ROW(r->y, r->y_stride, m), row, ROW(r->x, r->x_stride, m)[k], r->cols);
  }
}

// -- convolutions

u32 depthwise_chunks(const depthwise_call *r) { return divided(UP(r->channels, 4), 1); }

// A chunk has some panels, of four channels each. Rows of x and y are padded.
void depthwise_work(const depthwise_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  f32 *kernel = (f32 *)scratch; // (taps, 4)
  EACH_ROW(p, UP(r->channels, 4)) {
    const u8 *unit = AT(u8, r->w) + panel_bytes(f, r->count) * p;
    for (u32 t = 0; t < r->count; t += f->values, unit += f->bytes) unpack(f, unit, kernel + 4 * t);
    const u32 lanes = MIN(4, r->channels - 4 * p);
    v128_t term[4] = {splat(0), splat(1), splat(0), splat(0)};
    for (u32 i = 0; i < r->terms_count; i++) {
      f32 values[4] = {0, 0, 0, 0};
      memcpy(values, AT(f32, r->terms) + i * r->channels + 4 * p, 4 * lanes);
      term[i] = wasm_v128_load(values);
    }
    if (r->terms_count == 4) { // mean, variance, factor and shift
      term[0] = wasm_f32x4_neg(term[0]);
      term[1] = wasm_f32x4_div(term[2], wasm_f32x4_sqrt(term[1]));
      term[2] = term[3];
    }
    for (u32 m = 0; m < batch_size(r->state); m++) {
      v128_t sum = splat(0);
      for (u32 t = 0; t < r->count; t++) {
        const Tap tap = AT(Tap, r->taps)[m * r->count + t];
        if (tap.weight == 0) continue;
        const v128_t w = wasm_f32x4_mul(splat(tap.weight), wasm_v128_load(kernel + 4 * t));
        sum = madd(w, wasm_v128_load(ROW(r->x, r->stride, tap.row) + 4 * p), sum);
      }
      f32 found[4];
      wasm_v128_store(found, madd(wasm_f32x4_add(sum, term[0]), term[1], term[2]));
      memcpy(ROW(r->y, r->stride, m) + 4 * p, found, 4 * lanes);
    }
  }
}

u32 subsample_chunks(const subsample_call *r) { return divided(batch_size(r->state), 1); }

// wgsl/subsample.wgsl describes it. Its kernels are turned round, so that a vector has four channels.
void subsample_work(const subsample_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 channels = r->channels, width = UP(channels, 4) * 4, frames = *AT(u32, r->length), bins = r->bins;
  f32 *kernels = (f32 *)scratch, *biases = kernels + 18 * width, *row = biases + 2 * width; // (2, 9, width), (2, width)
  memset(kernels, 0, 4 * 20 * width);
  for (u32 c = 0; c < 2 * channels; c++) {
    const u32 stage = c / channels, channel = c % channels;
    matrix_row(&formats[r->type], r->w, 9, c, row, row + 16);
    for (u32 t = 0; t < 9; t++) kernels[(9 * stage + t) * width + channel] = row[t];
    biases[stage * width + channel] = AT(f32, r->biases)[c];
  }
  EACH_ROW(m, batch_size(r->state)) {
    for (u32 b = 0; b < UP(bins, 4); b++) {
      f32 *y = ROW(r->y, r->y_stride, m) + b * r->part_stride;
      for (u32 c = 0; c < width; c += 4) {
        v128_t sum = wasm_v128_load(biases + width + c);
        for (u32 place = 0; place < 9; place++) {
          const u32 line = 2 * m + place / 3 - 1, column = 2 * b + place % 3 - 1; // -1 is no smaller than the sizes
          if (line >= UP(frames, 2) || column >= UP(bins, 2)) continue; // the second one's padding
          v128_t value = wasm_v128_load(biases + c);
          for (u32 tap = 0; tap < 9; tap++) {
            const u32 frame = 2 * line + tap / 3 - 1, bin = 2 * column + tap % 3 - 1;
            if (frame >= frames || bin >= bins) continue;
            value = madd(wasm_v128_load(kernels + tap * width + c), splat(ROW(r->x, r->x_stride, frame)[bin]), value);
          }
          sum = madd(wasm_v128_load(kernels + (9 + place) * width + c), wasm_f32x4_pmax(splat(0), value), sum);
        }
        f32 found[4];
        wasm_v128_store(found, sum);
        memcpy(y + c, found, 4 * MIN(4, channels - c));
      }
    }
  }
}

// -- attention with a key for each distance (Dai et al. 2019)

INLINE f32 dot(const f32 *a, const f32 *b, u32 size) {
  v128_t sum = splat(0);
  u32 k = 0;
  for (; k + 4 <= size; k += 4) sum = madd(wasm_v128_load(a + k), wasm_v128_load(b + k), sum);
  f32 all = sum4(sum);
  for (; k < size; k++) all += a[k] * b[k];
  return all;
}

// y = the softmax of scores[0..n], times the rows values[j]. Overwrites the scores.
static void weigh(f32 *scores, u32 n, const f32 *values, i32 step, u32 size, f32 *y) {
  f32 top = scores[0], total = 0;
  for (u32 j = 1; j < n; j++) top = MAX(top, scores[j]);
  for (u32 j = 0; j < n; j++) total += scores[j] = exp1(scores[j] - top);
  memset(y, 0, 4 * size);
  for (u32 j = 0; j < n; j++) add_scaled_row(y, values + (i32)j * step, scores[j] / total, size);
}

u32 relative_attention_chunks(const relative_attention_call *r) { return divided(batch_size(r->state), 8); }

void relative_attention_work(const relative_attention_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 size = r->head_dim, cols = r->heads * size, stride = r->x_stride;
  f32 *scores = (f32 *)scratch, *q = scores + r->window, *key = q + size;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 count = MIN(r->window, m + 1);
    for (u32 head = 0; head < r->heads; head++) {
      const f32 *x = ROW(r->x, stride, m) + head * size;
      for (u32 k = 0; k < size; k++) q[k] = x[k] * r->q_scale * AT(f32, r->factor)[k];
      for (u32 d = 0; d < count; d++) {
        const f32 *relative = ROW(r->relative, r->relative_stride, d) + head * size;
        for (u32 k = 0; k < size; k++) key[k] = (x + cols - (size_t)d * stride)[k] * r->k_scale + relative[k];
        scores[d] = dot(q, key, size);
        if (r->soft_cap > 0)
          scores[d] = r->soft_cap * wasm_f32x4_extract_lane(tanh4(splat(scores[d] / r->soft_cap)), 0);
      }
      weigh(scores, count, x + 2 * cols, -(i32)stride, size, ROW(r->y, r->y_stride, m) + head * size);
    }
  }
}

u32 relative_attention_all_chunks(const relative_attention_all_call *r) {
  return divided(batch_size(r->state) * r->heads, 4);
}

void relative_attention_all_work(const relative_attention_all_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), size = r->head_dim, cols = r->heads * size, stride = r->x_stride;
  f32 *content = (f32 *)scratch, *distance = content + size, *scores = distance + size;
  EACH_ROW(item, n * r->heads) {
    const u32 m = item % n, head = item / n, span = r->block ? r->block : n;
    const u32 begin = m / span * span, count = MIN(span, n - begin); // the rows that it sees
    const f32 *x = AT(f32, r->x) + head * size, *q = x + (size_t)stride * m;
    for (u32 k = 0; k < size; k++) {
      content[k] = (q[k] + AT(f32, r->biases)[head * size + k]) * r->scale;
      distance[k] = (q[k] + AT(f32, r->biases)[cols + head * size + k]) * r->scale;
    }
    x += (size_t)stride * begin;
    for (u32 j = 0; j < count; j++) {
      const f32 *relative = ROW(r->relative, r->relative_stride, span - 1 + begin + j - m) + head * size;
      scores[j] = dot(content, x + cols + (size_t)stride * j, size) + dot(distance, relative, size);
    }
    weigh(scores, count, x + 2 * cols, (i32)stride, size, ROW(r->y, r->y_stride, m) + head * size);
  }
}

u32 softmax_chunks(const softmax_call *r) { return divided(batch_size(r->state), 8); }

void softmax_work(const softmax_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m), top = x[0], total = 0;
    for (u32 k = 1; k < r->cols; k++) top = MAX(top, x[k]);
    for (u32 k = 0; k < r->cols; k++) total += y[k] = exp1(x[k] - top);
    for (u32 k = 0; k < r->cols; k++) y[k] /= total;
    memset(y + r->cols, 0, 4 * (r->y_stride - r->cols));
  }
}

u32 column_norms_chunks(const column_norms_call *r) { return divided(r->cols, 32); }

// A chunk has some columns.
void column_norms_work(const column_norms_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 begin = part_begin(r->cols, chunk, chunks), end = part_begin(r->cols, chunk + 1, chunks);
  f32 *y = AT(f32, r->y);
  for (u32 c = begin; c < end; c++) y[c] = 0;
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    for (u32 c = begin; c < end; c++) y[c] += x[c] * x[c];
  }
  for (u32 c = begin; c < end; c++) y[c] = __builtin_sqrtf(y[c]);
}

u32 response_norm_chunks(const response_norm_call *r) { return divided(batch_size(r->state), UP(4096, r->cols)); }

void response_norm_work(const response_norm_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const f32 *lengths = AT(f32, r->lengths), *factors = AT(f32, r->terms), *bias = factors + r->cols;
  f32 mean = 0;
  for (u32 c = 0; c < r->cols; c++) mean += lengths[c] / r->cols;
  mean = MAX(mean, r->least);
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *x = ROW(r->x, r->x_stride, m);
    f32 *y = ROW(r->y, r->y_stride, m);
    for (u32 c = 0; c < r->cols; c++) y[c] = x[c] * (1 + factors[c] * lengths[c] / mean) + bias[c];
    memset(y + r->cols, 0, 4 * (r->y_stride - r->cols));
  }
}

u32 grid_heads_chunks(const grid_heads_call *r) { return divided(batch_size(r->state), 8); }

void grid_heads_work(const grid_heads_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 dim = r->head_dim, cols = r->heads * dim, wide = dim + 2 * r->side, width = r->heads * wide;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 cell = AT(u32, r->cells)[2 * m], side = AT(u32, r->cells)[2 * m + 1];
    f32 *y = ROW(r->y, r->y_stride, m), *k = ROW(r->k, width, m), *v = ROW(r->v, width, m);
    memset(y, 0, 4 * r->y_stride);
    memset(k, 0, 4 * width);
    memset(v, 0, 4 * width);
    for (u32 h = 0; h < r->heads; h++, y += wide, k += wide, v += wide) {
      const f32 *q = ROW(r->x, r->x_stride, m) + h * dim;
      memcpy(y, q, 4 * dim);
      memcpy(k, q + cols, 4 * dim);
      memcpy(v, q + 2 * cols, 4 * dim);
      for (u32 axis = 0; axis < 2; axis++) {
        const u32 at = axis ? cell >> 16 : cell & 0xffff, table = axis ? r->lines : r->columns, first = dim + axis * r->side;
        for (u32 j = 0; j < side; j++) y[first + j] = r->scale * dot(q, ROW(table, r->table_stride, at + side - 1 - j), dim);
        k[first + at] = 1;
      }
    }
  }
}
