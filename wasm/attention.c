// Attention. The softmax over a context is computed in parts of `size` positions, each in blocks. Parts and blocks begin at
// multiples of their sizes. So a token's result has the same bits in a prompt, alone, and in a small batch.

#include "kv_cache.h"

#define BLOCK 32   // positions whose keys and values are converted at a time
#define QUERIES 16 // rows of queries that share them
#define TILE 2     // rows of queries that share a loaded key or value

// One key/value head's part of a cache, for one sequence.
typedef struct {
  u32 state, table, pages, page, k, v, kind, cols, head, head_dim, seq;
} Keys;

// T5's biases of scores: a table (buckets, heads) of floats, f16 (1) or bf16 (2), and the bucket of each distance. 0: there are none.
typedef struct {
  u32 table, type, heads, buckets;
} Biases;

// Queries of one head each: their positions' visible ranges, and the state of the softmax.
typedef struct {
  const f32 *q[QUERIES];
  u32 begin[QUERIES], end[QUERIES], pos[QUERIES]; // what each sees, and its position
  f32 slope[QUERIES];
  const u32 *mask[QUERIES]; // bits of the positions that each attends to; 0: all that it sees
  Biases biases;   // of the heads from `head` on, each token's in turn
  u32 head, heads;
  f32 top[QUERIES], sum[QUERIES];
  f32 *acc; // (QUERIES, head_dim)
  u32 n;
} Queries;

// Copy BLOCK positions of keys or values as floats, (BLOCK, head_dim).
static void read_block(const Keys *c, u32 cache, u32 first, u32 size, f32 *to) {
  const u32 dim = c->head_dim;
  for (u32 j = 0; j < size; j++, to += dim) {
    const u32 row = cache_row(c->state, c->table, c->pages, c->page, c->seq, first + j);
    const size_t at = (size_t)row * c->cols + c->head * dim;
    if (c->kind == KV_F32) {
      memcpy(to, AT(f32, cache) + at, 4 * dim);
    } else if (c->kind == KV_F16) {
      const u16 *from = AT(u16, cache) + at;
      u32 k = 0;
      for (; k + 4 <= dim; k += 4) wasm_v128_store(to + k, finite_halves(from + k));
      for (; k < dim; k++) to[k] = half(from[k]);
    } else {
      const i8 *from = quantized_row(cache, row, c->page, c->cols) + c->head * dim;
      const f32 *scales = row_scales(cache, row, c->page, c->cols);
      const u32 column = c->head * dim;
      u32 k = 0;
      for (; column % 4 == 0 && k + 4 <= dim; k += 4) { // which share a scale
        const v128_t levels = wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(from + k)));
        const v128_t scale = wasm_f32x4_div(wasm_v128_load32_splat(scales + (column + k) / 32), splat(127));
        wasm_v128_store(to + k, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(levels), scale));
      }
      for (; k < dim; k++) to[k] = from[k] * (scales[(column + k) / 32] / 127.0f);
    }
  }
}

// The products of T queries with four keys.
INLINE void dot_keys(u32 T, const f32 *const *q, const f32 *keys, u32 dim, v128_t *to) {
  v128_t s[TILE][4];
#pragma unroll
  for (u32 i = 0; i < 4 * T; i++) s[i / 4][i % 4] = splat(0);
  u32 k = 0;
  for (; k + 4 <= dim; k += 4) {
    v128_t x[TILE];
#pragma unroll
    for (u32 t = 0; t < T; t++) x[t] = wasm_v128_load(q[t] + k);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      const v128_t key = wasm_v128_load(keys + j * dim + k);
#pragma unroll
      for (u32 t = 0; t < T; t++) s[t][j] = madd(x[t], key, s[t][j]);
    }
  }
#pragma unroll
  for (u32 t = 0; t < T; t++) {
    const v128_t *u = s[t];
    const v128_t ab = wasm_f32x4_add(wasm_i32x4_shuffle(u[0], u[1], 0, 4, 2, 6), wasm_i32x4_shuffle(u[0], u[1], 1, 5, 3, 7));
    const v128_t cd = wasm_f32x4_add(wasm_i32x4_shuffle(u[2], u[3], 0, 4, 2, 6), wasm_i32x4_shuffle(u[2], u[3], 1, 5, 3, 7));
    to[t] = wasm_f32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 1, 4, 5), wasm_i32x4_shuffle(ab, cd, 2, 3, 6, 7));
  }
  for (; k < dim; k++) {
    const v128_t column = wasm_f32x4_make(keys[k], keys[dim + k], keys[2 * dim + k], keys[3 * dim + k]);
    for (u32 t = 0; t < T; t++) to[t] = madd(splat(q[t][k]), column, to[t]);
  }
}

// Add V vectors of values, from column k on, of positions lo..end to T queries' sums.
INLINE void add_columns(u32 T, u32 V, f32 *const *acc, const f32 (*scores)[BLOCK + 4], const f32 *values, u32 dim, u32 k,
                        u32 lo, u32 end) {
  v128_t y[TILE][4];
#pragma unroll
  for (u32 i = 0; i < V * T; i++) y[i / V][i % V] = wasm_v128_load(acc[i / V] + k + 4 * (i % V));
  for (u32 j = lo; j < end; j++) {
    v128_t score[TILE];
#pragma unroll
    for (u32 t = 0; t < T; t++) score[t] = wasm_v128_load32_splat(&scores[t][j]);
#pragma unroll
    for (u32 c = 0; c < V; c++) {
      const v128_t v = wasm_v128_load(values + j * dim + k + 4 * c);
#pragma unroll
      for (u32 t = 0; t < T; t++) y[t][c] = madd(score[t], v, y[t][c]);
    }
  }
#pragma unroll
  for (u32 i = 0; i < V * T; i++) wasm_v128_store(acc[i / V] + k + 4 * (i % V), y[i / V][i % V]);
}

// The bias of a head for keys so many positions after the query.
static f32 relative_bias(const Biases *b, u32 head, i32 distance) {
  const i32 most = MOST_DISTANCE, place = MIN(MAX(distance, -most), most) + most;
  const u32 at = AT(u32, b->buckets)[place] * b->heads + head;
  if (b->type == 2) return wasm_f32x4_extract_lane(wasm_i32x4_splat(AT(u16, b->table)[at] << 16), 0);
  return b->type ? half(AT(u16, b->table)[at]) : AT(f32, b->table)[at];
}

// How products of queries and keys become scores: `cap` bounds them, if it is not 0.
typedef struct {
  f32 scale, cap;
} Scores;

// Keys and values of some positions, from `first` on.
typedef struct {
  const f32 *keys, *values;
  u32 first, dim;
} Block;

// Add the positions lo..end of a block to the softmax of T queries, from query i on.
INLINE void attend_tile(u32 T, Queries *x, u32 i, Block block, u32 lo, u32 end, Scores how) {
  const u32 first = block.first, dim = block.dim;
  const f32 *keys = block.keys, *values = block.values;
  const u32 padded = lo + UP(end - lo, 4) * 4;
  f32 scores[TILE][BLOCK + 4], *acc[TILE];
  for (u32 j = lo; j < end; j += 4) { // the keys after the last one are of this memory, too
    v128_t products[TILE];
    dot_keys(T, x->q + i, keys + j * dim, dim, products);
#pragma unroll
    for (u32 t = 0; t < T; t++) {
      v128_t s = wasm_f32x4_mul(products[t], splat(how.scale));
      if (how.cap > 0) s = wasm_f32x4_mul(splat(how.cap), tanh4(wasm_f32x4_div(s, splat(how.cap))));
      if (x->slope[i + t] != 0) {
        const i32 distance = (i32)(x->pos[i + t] - (first + j));
        const v128_t distances = wasm_i32x4_sub(wasm_i32x4_splat(distance), wasm_i32x4_make(0, 1, 2, 3));
        const v128_t far = wasm_f32x4_convert_i32x4(wasm_i32x4_abs(distances));
        s = wasm_f32x4_sub(s, wasm_f32x4_mul(splat(x->slope[i + t]), far));
      }
      wasm_v128_store(&scores[t][j], s);
      for (u32 k = 0; x->mask[i + t] && k < 4; k++) {
        const u32 at = MIN(first + j + k, first + end - 1); // the mask has no bits after the last position
        if (!(x->mask[i + t][at / 32] >> at % 32 & 1)) scores[t][j + k] = -__builtin_inff();
      }
      for (u32 k = 0; x->biases.table && k < 4; k++)
        scores[t][j + k] +=
            relative_bias(&x->biases, x->head + (i + t) % x->heads, (i32)(first + j + k - x->pos[i + t]));
    }
  }
#pragma unroll
  for (u32 t = 0; t < T; t++) {
    f32 top = x->top[i + t], *row = scores[t];
    acc[t] = x->acc + (i + t) * dim;
    for (u32 j = end; j < padded; j++) row[j] = -__builtin_inff();
    for (u32 j = lo; j < padded; j += 4) top = MAX(top, max4(wasm_v128_load(row + j)));
    if (top > x->top[i + t]) {
      const f32 factor = exp1(x->top[i + t] - top);
      for (u32 k = 0; k < dim; k++) acc[t][k] *= factor;
      x->sum[i + t] *= factor, x->top[i + t] = top;
    }
    if (top == -__builtin_inff()) top = 0; // a mask has none of the positions so far: the terms are 0
    v128_t sum = splat(0);
    for (u32 j = lo; j < padded; j += 4) {
      const v128_t e = exp4(wasm_f32x4_sub(wasm_v128_load(row + j), splat(top)));
      wasm_v128_store(row + j, e), sum = wasm_f32x4_add(sum, e);
    }
    x->sum[i + t] += sum4(sum);
  }
  u32 k = 0;
  for (; k + 16 <= dim; k += 16) add_columns(T, 4, acc, scores, values, dim, k, lo, end);
  for (; k + 4 <= dim; k += 4) add_columns(T, 1, acc, scores, values, dim, k, lo, end);
  for (; k < dim; k++)
    for (u32 t = 0; t < T; t++)
      for (u32 j = lo; j < end; j++) acc[t][k] += scores[t][j] * values[j * dim + k];
}

// Add the `size` positions of a block to the softmax of every query, two at a time where they see the same.
static void attend_block(Queries *x, Block block, u32 size, Scores how) {
  const u32 first = block.first;
  u32 lo[QUERIES], end[QUERIES];
  for (u32 i = 0; i < x->n; i++) lo[i] = MAX(first, x->begin[i]) - first, end[i] = MIN(size, MAX(first, x->end[i]) - first);
  for (u32 i = 0; i < x->n;) {
    const u32 both = i + 1 < x->n && lo[i] == lo[i + 1] && end[i] == end[i + 1];
    if (lo[i] < end[i]) {
      if (both) attend_tile(2, x, i, block, lo[i], end[i], how);
      else attend_tile(1, x, i, block, lo[i], end[i], how);
    }
    i += 1 + both;
  }
}

// Start the softmax of every query.
static void start(Queries *x, u32 dim) {
  memset(x->acc, 0, 4 * dim * x->n);
  for (u32 i = 0; i < x->n; i++) x->top[i] = -__builtin_inff(), x->sum[i] = 0;
}

// Attend over positions begin..end, which are of one part.
static void attend(const Keys *c, Queries *x, u32 begin, u32 end, Scores how, f32 *scratch) {
  const u32 dim = c->head_dim;
  f32 *keys = scratch, *values = keys + BLOCK * dim;
  start(x, dim);
  for (u32 first = begin / BLOCK * BLOCK; first < end; first += BLOCK) {
    const u32 size = MIN(BLOCK, end - first);
    read_block(c, c->k, MAX(first, begin), first + size - MAX(first, begin), keys + (MAX(first, begin) - first) * dim);
    read_block(c, c->v, MAX(first, begin), first + size - MAX(first, begin), values + (MAX(first, begin) - first) * dim);
    attend_block(x, (Block){keys, values, first, dim}, size, how);
  }
}

// The softmax over all parts so far: the sums of its terms relative to `top`.
typedef struct {
  f32 *acc, top, sum;
} Total;

// Add a part to the total, in the order of the positions.
static void add_part(Total *total, const f32 *acc, f32 top, f32 sum, u32 dim) {
  if (sum == 0) return; // nothing of it is visible
  const f32 larger = MAX(total->top, top), old = exp1(total->top - larger), new = exp1(top - larger);
  for (u32 k = 0; k < dim; k++) total->acc[k] = total->acc[k] * old + acc[k] * new;
  total->sum = total->sum * old + sum * new, total->top = larger;
}

// Divide by the sum of the softmax, in which a sink takes part.
static void finish(const f32 *acc, f32 top, f32 sum, const f32 *sink, u32 dim, f32 *y) {
  f32 factor = 1;
  if (sink) {
    const f32 all = MAX(top, *sink);
    factor = exp1(top - all), sum = sum * factor + exp1(*sink - all);
  }
  for (u32 k = 0; k < dim; k++) y[k] = acc[k] * factor / sum;
}

u32 scale_queries_chunks(const scale_queries_call *r) { return batch_size(r->state) > 0; }

void scale_queries_work(const scale_queries_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0; m < batch_size(r->state); m++) {
    const u32 first = segment(r->state, r->segments, m).first;
    const u32 lengths = (position(r->state, r->per_token, m) - first + r->first) / r->length;
    const f32 factor = 1 + r->scale * (f32)log1(1.0 + lengths);
    for (u32 k = 0; k < r->cols; k++) ROW(r->y, r->y_stride, m)[k] *= factor;
  }
}

INLINE u32 tokens_of_tile(u32 group) { return MAX(1, QUERIES / group); }

u32 attention_chunks(const attention_call *r) {
  return r->kv_heads * UP(batch_size(r->state), tokens_of_tile(r->group));
}

// What token m sees of its segment: first and end.
static void visible(const attention_call *r, const Segment *s, u32 m, u32 *begin, u32 *end) {
  const u32 pos = states(r->state)->pos + m;
  u32 before = r->window ? (r->causal ? r->window - 1 : r->window / 2) : -1u;
  if (r->chunked) before = (pos - s->first) % r->window;
  *begin = pos - MIN(before, pos - s->first);
  if (r->records) *end = media_record(r->state, r->records, m)->end;
  else *end = r->causal ? pos + 1 : r->window ? MIN(s->end, pos + r->window / 2 + 1) : s->end;
}

// Attend with the queries of tokens first..end of one segment and a head, from query head `q_head` on.
static void attend_tokens(const attention_call *r, const Segment *s, u32 head, u32 first, u32 end, u32 q_head,
                          u32 heads, f32 *block) {
  const u32 dim = r->head_dim;
  Queries x = {.acc = block + 2 * BLOCK * dim, .head = q_head, .heads = heads};
  x.biases = (Biases){r->relative, r->relative_type, r->heads, r->buckets};
  Total totals[QUERIES];
  u32 from = -1u, to = 0;
  for (u32 t = first; t < end; t++) {
    for (u32 h = q_head; h < q_head + heads; h++, x.n++) {
      x.q[x.n] = ROW(r->q, r->q_stride, t) + h * dim, x.pos[x.n] = states(r->state)->pos + t;
      x.slope[x.n] = r->slopes ? AT(f32, r->slopes)[h] : 0;
      x.mask[x.n] = r->mask ? AT(u32, r->mask) + (size_t)r->mask_words * t : 0;
      visible(r, s, t, &x.begin[x.n], &x.end[x.n]);
      from = MIN(from, x.begin[x.n]), to = MAX(to, x.end[x.n]);
      totals[x.n] = (Total){x.acc + (QUERIES + x.n) * dim, -__builtin_inff(), 0};
      memset(totals[x.n].acc, 0, 4 * dim);
    }
  }
  const Keys c = {r->state, r->table, r->pages, r->page, r->k, r->v, r->kind, r->kv_heads * dim, head, dim,
                  states(r->state)->seq};
  for (u32 at = from; at < to; at = (at / r->size + 1) * r->size) {
    attend(&c, &x, at, MIN(to, (at / r->size + 1) * r->size), (Scores){r->scale, r->soft_cap}, block);
    for (u32 i = 0; i < x.n; i++) add_part(&totals[i], x.acc + i * dim, x.top[i], x.sum[i], dim);
  }
  for (u32 i = 0; i < x.n; i++) {
    const u32 t = first + i / heads, h = q_head + i % heads;
    finish(totals[i].acc, totals[i].top, totals[i].sum, r->sinks ? AT(f32, r->sinks) + h : 0, dim,
           ROW(r->y, r->y_stride, t) + h * dim);
  }
}

void attention_work(const attention_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state), group = r->group, tokens = tokens_of_tile(group);
  const u32 tiles = UP(n, tokens), total = r->kv_heads * tiles;
  for (u32 item = part_begin(total, chunk, chunks); item < part_begin(total, chunk + 1, chunks); item++) {
    const u32 head = item / tiles, tile = item % tiles * tokens, tile_end = MIN(n, tile + tokens);
    for (u32 m = tile, next; m < tile_end; m = next) { // the tokens of one segment that see up to one end
      const Segment s = segment(r->state, r->segments, m);
      for (next = m + 1; next < tile_end; next++) {
        const Segment other = segment(r->state, r->segments, next);
        if (other.first != s.first || other.end != s.end) break;
      }
      for (u32 h = 0; h < group; h += QUERIES) // a large group of heads takes several rounds
        attend_tokens(r, &s, head, m, next, head * group + h, MIN(group - h, QUERIES), (f32 *)scratch);
    }
  }
}

// -- attention of a small batch: the context in parts, then their combination

// What a token of a small batch sees: first and end.
typedef struct {
  u32 first, end;
} Range;

// The position after the last one of a sequence in a small batch.
static u32 end_in_batch(u32 state, u32 seq) {
  u32 end = 0;
  for (const State *s = states(state), *last = s + s->n; s < last; s++)
    if (s->seq == seq) end = MAX(end, s->pos + 1);
  return end;
}

// Which positions a layer's tokens may see. `mutual`: all tokens of their sequence in the batch.
typedef struct {
  u32 state, window, chunked, part, shifts, anchor, from, mutual;
} Visibility;

// That of a call: both kinds of calls have these fields.
#define VISIBILITY(r) \
  ((Visibility){(r)->state, (r)->window, (r)->chunked, (r)->part, (r)->shifts, (r)->anchor, (r)->from, (r)->mutual})

// What a token at `pos` of the sequence `seq` sees.
INLINE Range seen_by(Visibility v, u32 seq, u32 pos) {
  const u32 encoded = v.part ? -tables(v.state)[v.shifts + seq] : 0; // rows of the sequence's encoder
  const u32 end = pos + 1, own = v.anchor ? pos : end; // no cache has an anchored token's keys and values
  const u32 last = v.mutual ? end_in_batch(v.state, seq) : own;
  if (v.part == PART_ENCODER) return (Range){0, encoded};
  if (v.part == PART_DECODER) return (Range){MIN(encoded, end), end};
  if (v.chunked) return (Range){pos / v.window * v.window, end};
  return (Range){v.window && v.window < end ? end - v.window : MIN(v.from, pos), last};
}

u32 attention_decode_chunks(const attention_decode_call *r) {
  return batch_size(r->state) * r->kv_heads * r->split;
}

void attention_decode_work(const attention_decode_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 dim = r->head_dim, group = r->group, total = attention_decode_chunks(r), width = dim + 4;
  f32 *block = (f32 *)scratch;
  for (u32 item = part_begin(total, chunk, chunks); item < part_begin(total, chunk + 1, chunks); item++) {
    const u32 part = item % r->split, head = item / r->split % r->kv_heads, m = item / r->split / r->kv_heads;
    const u32 pos = anchored_position(r->state, r->per_token, r->anchor, m);
    const u32 seq = sequence(r->state, r->per_token, m);
    const Range seen = seen_by(VISIBILITY(r), seq, pos);
    const u32 at = (seen.first / r->size + part) * r->size, begin = MAX(seen.first, at);
    const u32 end = MIN(at + r->size, seen.end);
    if (begin >= end) continue;
    for (u32 h = 0; h < group; h += QUERIES) {
      Queries x = {.acc = block + 2 * BLOCK * dim, .head = head * group + h, .heads = MIN(group - h, QUERIES)};
      x.biases = (Biases){r->relative, r->relative_type, r->heads, r->buckets};
      for (u32 g = h; g < MIN(group, h + QUERIES); g++, x.n++) {
        x.q[x.n] = ROW(r->q, r->q_stride, m) + (head * group + g) * dim;
        x.begin[x.n] = begin, x.end[x.n] = end, x.pos[x.n] = pos;
        x.slope[x.n] = r->slopes ? AT(f32, r->slopes)[head * group + g] : 0;
        x.mask[x.n] = r->mask ? AT(u32, r->mask) + (size_t)r->mask_words * m : 0;
      }
      const Keys c = {r->state, r->table, r->pages, r->page, r->k, r->v, r->kind, r->kv_heads * dim, head, dim, seq};
      attend(&c, &x, begin, end, (Scores){r->scale, r->soft_cap}, block);
      for (u32 i = 0; i < x.n; i++) {
        const u32 q_head = head * group + h + i;
        f32 *to = AT(f32, r->parts) + (((size_t)m * r->kv_heads * group + q_head) * r->split + part) * width;
        memcpy(to, x.acc + i * dim, 4 * dim);
        to[dim] = x.top[i], to[dim + 1] = x.sum[i];
      }
    }
  }
}

u32 attention_combine_chunks(const attention_combine_call *r) { return batch_size(r->state); }

void attention_combine_work(const attention_combine_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 dim = r->head_dim, width = dim + 4;
  f32 *acc = (f32 *)scratch;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = anchored_position(r->state, r->per_token, r->anchor, m);
    const u32 seq = sequence(r->state, r->per_token, m);
    const Range seen = seen_by(VISIBILITY(r), seq, pos);
    const u32 used = seen.end > seen.first ? (seen.end - 1) / r->size - seen.first / r->size + 1 : 0;
    for (u32 head = 0; head < r->heads; head++) {
      const f32 *part = AT(f32, r->parts) + ((size_t)m * r->heads + head) * r->split * width;
      Total total = {acc, -__builtin_inff(), 0};
      memset(acc, 0, 4 * dim);
      for (u32 p = 0; p < used; p++, part += width) add_part(&total, part, part[dim], part[dim + 1], dim);
      const f32 *sink = r->sinks ? AT(f32, r->sinks) + head : 0;
      finish(acc, total.top, total.sum, sink, dim, ROW(r->y, r->y_stride, m) + head * dim);
    }
  }
}
