// The ops that read matrices: the embedding of tokens, the rounding of x, and products.
#include "ops.h"
#include "products.h"

// -- embeddings

u32 embed_chunks(const embed_call *r) { return batch_size(r->state); }


void embed_work(const embed_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u32 n = batch_size(r->state);
  f32 *values = (f32 *)scratch;
  for (u32 m = part_begin(n, chunk, chunks); m < part_begin(n, chunk + 1, chunks); m++) {
    const u32 pos = position(r->state, r->per_token, m);
    f32 *x = ROW(r->x, r->x_stride, m);
    u32 row = 0;
    if (r->kind == EMBED_TOKEN) row = AT(u32, r->tokens)[sequence(r->state, r->per_token, m) * r->tokens_stride + pos];
    if (r->kind == EMBED_POSITION) row = pos - segment(r->state, r->segments, m).first;
    if (r->media_row && row >= FIRST_MEDIA_ID) {
      if (r->media_row != MEDIA_FIRST) {
        const f32 scale = r->media_row == MEDIA_SCALED ? r->scale : 1, *given = ROW(r->media, r->media_stride, m);
        for (u32 k = 0; k < r->cols; k++) x[k] = scale * given[k];
        continue;
      }
      row = 0;
    }
    row -= r->row0;
    if (row >= r->rows) continue;
    const u8 *unit = AT(u8, r->w) + panel_bytes(f, r->cols) * (row / 4);
    for (u32 column = 0; column < r->cols; column += f->values, unit += f->bytes) {
      unpack(f, unit, values);
      for (u32 k = 0; k < f->values; k++) {
        const f32 value = r->scale * values[4 * k + row % 4];
        x[column + k] = r->kind == EMBED_TOKEN ? value : x[column + k] + value;
      }
    }
  }
}

// -- x as products read it

INLINE u32 rows_of_x(u32 state, u32 last, u32 repeat) { return last ? 1 : batch_size(state) * repeat; }

u32 prepare_chunks(const prepare_call *r) {
  return divided(rows_of_x(r->state, r->last, r->repeat), UP(4096, r->cols));
}

// Round a row as llama.cpp does: groups of 32 share a scale, the largest becomes 127.
static void round_row(const f32 *x, u32 cols, u8 *to) {
  const u32 groups = cols / 32;
  f32 *d = (f32 *)to;
  f32 *sums = (f32 *)(to + 4 * groups);
  u8 *q = to + 12 * groups;
  i16 *wide = (i16 *)(q + cols);
  for (u32 g = 0; g < groups; g++, x += 32, q += 32, wide += 32) {
    v128_t v[8], top = splat(0);
    for (u32 i = 0; i < 8; i++) v[i] = wasm_v128_load(x + 4 * i), top = wasm_f32x4_max(top, wasm_f32x4_abs(v[i]));
    const f32 largest = max4(top);
    const v128_t inverse = splat(largest > 0 ? 127.0f / largest : 0);
    d[g] = largest / 127.0f;
    i32 levels[2];
    for (u32 h = 0; h < 2; h++) {
      v128_t w[4];
      for (u32 i = 0; i < 4; i++)
        w[i] = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(v[4 * h + i], inverse)));
      const v128_t a = wasm_i16x8_narrow_i32x4(w[0], w[1]), b = wasm_i16x8_narrow_i32x4(w[2], w[3]);
      wasm_v128_store(wide + 16 * h, a), wasm_v128_store(wide + 16 * h + 8, b);
      wasm_v128_store(q + 16 * h, wasm_i8x16_narrow_i16x8(a, b));
      const v128_t all = wasm_i32x4_add(wasm_i32x4_add(w[0], w[1]), wasm_i32x4_add(w[2], w[3]));
      levels[h] = wasm_i32x4_extract_lane(all, 0) + wasm_i32x4_extract_lane(all, 1) +
                  wasm_i32x4_extract_lane(all, 2) + wasm_i32x4_extract_lane(all, 3);
    }
    sums[2 * g] = (f32)(levels[0] + levels[1]), sums[2 * g + 1] = (f32)levels[0];
  }
}

void prepare_work(const prepare_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 rows = rows_of_x(r->state, r->last, r->repeat), first = r->last ? batch_size(r->state) - 1 : 0;
  for (u32 m = part_begin(rows, chunk, chunks); m < part_begin(rows, chunk + 1, chunks); m++) {
    const f32 *x = ROW(r->x, r->x_stride, m + first);
    u8 *to = AT(u8, r->to) + (size_t)r->to_stride * m;
    f32 *y = r->exact ? (f32 *)to : (f32 *)scratch;
    if (r->norm) {
      const f32 *norm = AT(f32, r->norm);
      const f32 scale = inverse_rms(x, r->cols, r->eps);
      for (u32 k = 0; k < r->cols; k++) y[k] = x[k] * scale * norm[k];
    } else if (r->exact) memcpy(y, x, 4 * r->cols);
    if (!r->exact) round_row(r->norm ? y : x, r->cols, to);
  }
}

// -- products

typedef struct {
  u32 y, stride, row0; // where results go: address, floats of a row, first column
  f32 factor;          // of results that are added to what is there; 0: they replace it
  u32 bias;            // address of the bias of the first row, or 0
  u32 scales;          // address of the first matrix's scale, or 0: there are none
  i32 scale_rows[2];   // the rows that the matrices after it begin with
} Output;

// The scales of rows row..row + 3, of which some may be outside of the matrices.
INLINE v128_t scales_of(const Output *o, i32 row) {
  const f32 *scales = AT(f32, o->scales);
  f32 lanes[4];
  for (i32 r = row; r < row + 4; r++) lanes[r - row] = scales[(r >= o->scale_rows[0]) + (r >= o->scale_rows[1])];
  return wasm_v128_load(lanes);
}

INLINE f32 *output_row(const Output *o, u32 m) { return ROW(o->y, o->stride, m) + o->row0; }

// Write the products of rows first.. of a matrix, of which only rows lo to hi - 1 count. Row lo goes to column 0.
static void write_panel(const Output *o, v128_t value, u32 m, u32 first, u32 lo, u32 hi) {
  const f32 *bias = o->bias ? AT(f32, o->bias) : 0;
  f32 *y = output_row(o, m);
  if (o->scales) value = wasm_f32x4_mul(value, scales_of(o, (i32)(first - lo)));
  if (first >= lo && first + 4 <= hi) {
    f32 *at = y + (first - lo);
    if (bias) value = wasm_f32x4_add(value, wasm_v128_load(bias + (first - lo)));
    if (o->factor != 0) value = wasm_f32x4_add(wasm_v128_load(at), wasm_f32x4_mul(value, splat(o->factor)));
    wasm_v128_store(at, value);
    return;
  }
  f32 lanes[4];
  wasm_v128_store(lanes, value);
  for (u32 r = 0; r < 4; r++) {
    const u32 row = first + r;
    if (row < lo || row >= hi) continue;
    const f32 sum = lanes[r] + (bias ? bias[row - lo] : 0);
    y[row - lo] = o->factor != 0 ? y[row - lo] + sum * o->factor : sum;
  }
}

// Rows lo to hi - 1 of a matrix; of these, the ones in the panels begin to end - 1.
typedef struct {
  const Format *f;
  const u8 *w;
  u32 cols, lo, hi, begin, end;
} MatrixPart;

// `n` rows of x, and where their products go. `x_rows` and `y_rows`: their numbers, or 0 if they are 0, 1, ...
typedef struct {
  const Input *x;
  u32 n;
  const u32 *x_rows, *y_rows;
} Tokens;

// The rows of x of the tile from token m on: the last one again where there are fewer than TILE.
INLINE u32 tile_of(Tokens tokens, u32 m, const u8 **rows) {
  const u32 count = MIN(TILE, tokens.n - m);
  for (u32 t = 0; t < TILE; t++) {
    const u32 row = m + MIN(t, count - 1);
    rows[t] = input_row(tokens.x, tokens.x_rows ? tokens.x_rows[row] : row);
  }
  return count;
}

INLINE u32 y_row(Tokens tokens, u32 m) { return tokens.y_rows ? tokens.y_rows[m] : m; }

// multiply() with rows of floats.
static void multiply_floats(MatrixPart w, Tokens tokens, const Output *o, f32 *scratch) {
  for (u32 first = w.begin, panels; first < w.end; first += panels) {
    FloatPanels floats;
    panels = float_panels(w.f, w.w + panel_bytes(w.f, w.cols) * first, w.cols, w.end - first, tokens.n, scratch, &floats);
    for (u32 m = 0; m < tokens.n; m += TILE) {
      const u8 *rows[TILE];
      const u32 count = tile_of(tokens, m, rows);
      v128_t to[TILE][TILE];
      float_products(&floats, panels, w.cols, rows, count, to);
      for (u32 i = 0; i < panels * count; i++) {
        const u32 p = i / count, t = i % count;
        write_panel(o, to[p][t], y_row(tokens, m + t), 4 * (first + p), w.lo, w.hi);
      }
    }
  }
}

#define PANELS 16 // that a tile of tokens is multiplied with while its rows are in the first cache

// Multiply a part of a matrix with rows of x.
static void multiply(MatrixPart w, Tokens tokens, const Output *o, f32 *scratch) {
  if (tokens.x->exact) {
    multiply_floats(w, tokens, o, scratch);
    return;
  }
  const size_t size = panel_bytes(w.f, w.cols);
  for (u32 first = w.begin; first < w.end; first += PANELS) {
    for (u32 m = 0; m < tokens.n; m += TILE) {
      const u8 *rows[TILE];
      const u32 count = tile_of(tokens, m, rows);
      for (u32 p = first; p < MIN(w.end, first + PANELS); p++) {
        v128_t to[TILE];
        panel_product(w.f, w.w + size * p, w.cols, rows, count, to);
        for (u32 t = 0; t < count; t++) write_panel(o, to[t], y_row(tokens, m + t), 4 * p, w.lo, w.hi);
      }
    }
  }
}

#define LEAST_PRODUCTS 131072 // of a chunk

u32 product_chunks(const product_call *r) {
  return divided(UP(r->rows, 4), UP(LEAST_PRODUCTS, 4 * r->cols * rows_of_x(r->state, r->last, 1)));
}

void product_work(const product_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 panels = UP(r->rows, 4);
  const Input x = {AT(u8, r->x), r->x_row, r->exact};
  const Output o = {r->y, r->y_stride, r->row0, r->factor, r->bias ? r->bias + r->row0 : 0,
                    r->scales, {(i32)r->scale_row_1, (i32)r->scale_row_2}};
  const MatrixPart w = {&formats[r->type], AT(u8, r->w), r->cols, 0, r->rows, part_begin(panels, chunk, chunks),
                        part_begin(panels, chunk + 1, chunks)};
  multiply(w, (Tokens){&x, rows_of_x(r->state, r->last, 1), 0, 0}, &o, (f32 *)scratch);
}

// -- products of every head's own matrix, or of its transpose, with its part of a row

// y (n, columns from y_first on) = the transposes of rows from `first` on, times x.
static void transposed_product(const head_products_call *r, const Format *f, u32 head, u32 n, f32 *values) {
  for (u32 m = 0; m < n; m++) memset(ROW(r->y, r->y_stride, m) + r->y_first + head * r->y_head, 0, 4 * r->cols);
  for (u32 k = 0; k < r->rows; k++) {
    const u32 row = r->w_first + head * r->w_head + k;
    const u8 *unit = AT(u8, r->w) + panel_bytes(f, r->cols) * (row / 4);
    for (u32 column = 0; column < r->cols; column += f->values, unit += f->bytes) {
      unpack(f, unit, values);
      for (u32 m = 0; m < n; m++) {
        const f32 x = ROW(r->x, r->x_stride, m)[r->x_first + head * r->x_head + k];
        f32 *y = ROW(r->y, r->y_stride, m) + r->y_first + head * r->y_head + column;
        for (u32 i = 0; i < f->values; i++) y[i] += x * values[4 * i + row % 4];
      }
    }
  }
}

u32 head_products_chunks(const head_products_call *r) { return divided(r->heads, 1); }

void head_products_work(const head_products_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u32 n = batch_size(r->state);
  EACH_ROW(head, r->heads) {
    if (r->transposed) {
      transposed_product(r, f, head, n, (f32 *)scratch);
      continue;
    }
    const Input x = {AT(u8, r->x) + 4 * (r->x_first + head * r->x_head), 4 * r->x_stride, 1};
    const Output o = {r->y + r->y_first + head * r->y_head, r->y_stride, 0, 0, 0, 0, {0, 0}};
    const u8 *w = AT(u8, r->w) + panel_bytes(f, r->cols) * ((r->w_first + head * r->w_head) / 4);
    const MatrixPart part = {f, w, r->cols, 0, r->rows, 0, UP(r->rows, 4)};
    multiply(part, (Tokens){&x, n, 0, 0}, &o, (f32 *)scratch);
  }
}

// -- what adapters add to products (py_engine/plan/low_rank.py)

typedef struct {
  u32 y, rows, b, h, adapter;
  f32 factor;
} Entry; // of wgsl/add_low_rank.wgsl

// A token's scale of an adapter: 0 before the first position where the adapter counts.
INLINE f32 adapter_scale(u32 state, u32 per_token, u32 scales, u32 adapters, u32 adapter, u32 m) {
  const f32 *found = ROW(scales, 2 * adapters, sequence(state, per_token, m)) + 2 * adapter;
  return (f32)position(state, per_token, m) >= found[1] ? found[0] : 0;
}

u32 add_low_rank_chunks(const add_low_rank_call *r) {
  const u32 tokens = r->last ? 1 : batch_size(r->state);
  return divided(UP(r->rows, 4), UP(LEAST_PRODUCTS, 4 * r->cols * r->count * tokens));
}

// A chunk has rows of the result, so that no two add to the same one.
void add_low_rank_work(const add_low_rank_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u32 n = r->last ? 1 : batch_size(r->state), begun = r->last ? batch_size(r->state) - 1 : 0;
  const u32 begin = r->first + part_begin(r->rows, chunk, chunks), end = r->first + part_begin(r->rows, chunk + 1, chunks);
  for (u32 i = 0; i < r->count; i++) {
    const Entry *e = AT(Entry, r->entries) + i;
    const u32 from = MAX(begin, e->y), to = MIN(end, e->y + e->rows);
    if (from >= to) continue;
    const u32 lo = e->b + from - e->y, hi = lo + to - from; // rows of B
    const Output o = {r->y, r->y_stride, from, 1, 0, 0, {0, 0}};
    for (u32 m = 0; m < n; m++) {
      const f32 scale = e->factor * adapter_scale(r->state, r->per_token, r->scales, r->adapters, e->adapter, begun + m);
      if (scale == 0) continue;
      const u8 *x = (const u8 *)(ROW(r->h, r->h_stride, m) + e->h), *const rows[TILE] = {x, x, x, x};
      for (u32 p = lo / 4; p < UP(hi, 4); p++) {
        FloatPanels floats;
        v128_t sums[1][TILE];
        float_panels(f, AT(u8, r->w) + panel_bytes(f, r->cols) * p, r->cols, 1, 1, (f32 *)scratch, &floats);
        float_products(&floats, 1, r->cols, rows, 1, sums);
        write_panel(&o, wasm_f32x4_mul(sums[0][0], splat(scale)), m, 4 * p, lo, hi);
      }
    }
  }
}

u32 add_expert_low_rank_chunks(const add_expert_low_rank_call *r) {
  const u32 slots = batch_size(r->state) * r->used;
  return divided(UP(r->rows, 4), UP(LEAST_PRODUCTS, 4 * r->cols * slots));
}

// Of an adapter's entry. A chunk has rows of every expert's B, so that no two add to the same column.
void add_expert_low_rank_work(const add_expert_low_rank_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const Format *f = &formats[r->type];
  const u32 begin = part_begin(r->rows, chunk, chunks), end = part_begin(r->rows, chunk + 1, chunks);
  if (begin == end) return;
  for (u32 slot = 0; slot < batch_size(r->state) * r->used; slot++) {
    const u32 m = slot / r->used, expert = AT(u32, r->chosen)[slot];
    f32 weight = r->weights ? AT(f32, r->weights)[slot] : 1;
    if (r->factors) { // of W x alone: the weights have them
      const f32 of_output = AT(f32, r->factors)[expert];
      weight = of_output != 0 ? weight / of_output : 0;
    }
    const f32 factor = weight * r->ratio;
    const f32 scale = factor * adapter_scale(r->state, r->per_token, r->scales, r->adapters, r->adapter, m);
    if (scale == 0) continue;
    const u32 lo = (r->index * r->experts + expert) * r->rows + begin, hi = lo + end - begin; // rows of B
    const Output o = {r->y, r->y_stride, r->first + begin, 1, 0, 0, {0, 0}};
    const u8 *x = (const u8 *)(ROW(r->h, r->h_stride, slot) + r->index * r->cols), *const rows[TILE] = {x, x, x, x};
    for (u32 p = lo / 4; p < UP(hi, 4); p++) {
      FloatPanels floats;
      v128_t sums[1][TILE];
      float_panels(f, AT(u8, r->w) + panel_bytes(f, r->cols) * p, r->cols, 1, 1, (f32 *)scratch, &floats);
      float_products(&floats, 1, r->cols, rows, 1, sums);
      write_panel(&o, wasm_f32x4_mul(sums[0][0], splat(scale)), r->weights ? m : slot, 4 * p, lo, hi);
    }
  }
}

u32 add_direction_chunks(const add_direction_call *r) { return batch_size(r->state) > 0; }

void add_direction_work(const add_direction_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const f32 scale = adapter_scale(r->state, r->per_token, r->scales, r->adapters, r->adapter, m);
    f32 *x = ROW(r->x, r->x_stride, m);
    for (u32 s = 0; s < r->streams; s++)
      for (u32 k = 0; k < r->cols; k++) x[s * r->cols + k] += scale * AT(f32, r->direction)[k];
  }
}

// -- experts

// The number of groups: of tiles of a sorted batch, else of the chosen experts of every token.
INLINE u32 expert_groups(const expert_product_call *r) {
  return r->tiles ? r->tile_count : batch_size(r->state) * r->used;
}

u32 expert_product_chunks(const expert_product_call *r) {
  const u32 panels = UP(r->rows, 4), parts = divided(panels, UP(LEAST_PRODUCTS, 4 * r->cols));
  return expert_groups(r) * r->stack * parts;
}

void expert_product_work(const expert_product_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 panels = UP(r->rows, 4), parts = divided(panels, UP(LEAST_PRODUCTS, 4 * r->cols));
  const u32 total = expert_groups(r) * r->stack * parts;
  for (u32 item = part_begin(total, chunk, chunks); item < part_begin(total, chunk + 1, chunks); item++) {
    const u32 part = item % parts, matrix = item / parts % r->stack, group = item / parts / r->stack;
    u32 slot = group, expert, count = 1;
    const u32 *slots = &slot;
    if (r->tiles) {
      const u32 *tile = AT(u32, r->tiles) + 4 * group;
      expert = tile[0], slots = AT(u32, r->slots) + tile[1], count = tile[2];
    } else expert = AT(u32, r->chosen)[group];
    const u32 lo = (matrix * r->experts + expert) * r->rows, hi = lo + r->rows;
    const u32 begin = lo / 4, size = UP(hi, 4) - begin;
    const Input x = {AT(u8, r->x), r->x_row, r->exact};
    const u32 bias = r->bias ? r->bias + lo : 0;
    const u32 scale = r->scales ? r->scales + matrix * r->experts + expert : 0;
    const Output o = {r->y, r->y_stride, r->row0 + matrix * r->rows, 0, bias, scale, {INT32_MAX, INT32_MAX}};
    const MatrixPart w = {&formats[r->type], AT(u8, r->w), r->cols, lo, hi, begin + part_begin(size, part, parts),
                          begin + part_begin(size, part + 1, parts)};
    for (u32 m = 0; m < count; m += TILE) {
      const u32 n = MIN(TILE, count - m);
      u32 rows[TILE];
      for (u32 t = 0; t < n; t++) rows[t] = r->per_slot ? slots[m + t] : slots[m + t] / r->used;
      multiply(w, (Tokens){&x, n, rows, slots + m}, &o, (f32 *)scratch);
    }
  }
}
