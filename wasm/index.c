// The index of sparse attention: scores of positions, and the highest of them (wgsl/index_scores.wgsl and others).
// rope.c appends its keys.
#include "rotation.h"

#define BLOCK 64 // positions of an item of work

// The tokens of the batch that a part of it has.
INLINE u32 part_tokens(u32 state, u32 first, u32 tokens) {
  const u32 n = batch_size(state);
  return n > first ? MIN(tokens, n - first) : 0;
}

static f32 product(const f32 *q, const f32 *k, u32 size) { // size: a multiple of 4
  v128_t sum = splat(0);
  for (u32 i = 0; i < size; i += 4) sum = madd(wasm_v128_load(q + i), wasm_v128_load(k + i), sum);
  return sum4(sum);
}

// The keys that a token sees: the first, and the one after the last. Joined ones are counted from its sequence's first.
typedef struct {
  u32 begin, end;
} Keys;

static Keys keys_of(u32 state, u32 per_token, u32 segments, u32 pool, u32 m) {
  const u32 begin = segment(state, segments, m).first, end = position(state, per_token, m) + 1;
  return pool > 1 ? (Keys){0, (end - begin) / pool} : (Keys){begin, end};
}

u32 index_join_chunks(const index_join_call *r) { return divided(batch_size(r->state), 4); }

// The keys of a token and of those before it, weighted by a softmax over their gates, column by column.
void index_join_work(const index_join_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  f32 *totals = (f32 *)scratch, *tops = totals + r->size;
  EACH_ROW(m, batch_size(r->state)) {
    const u32 pos = position(r->state, r->per_token, m), seq = sequence(r->state, r->per_token, m);
    if ((pos + 1 - segment(r->state, r->segments, m).first) % r->pool) continue;
    f32 *sums = ROW(r->k, r->row, cache_row(r->state, r->table, r->pages, r->page, seq, pos)) + 2 * r->size;
    for (u32 k = 0; k < r->size; k++) sums[k] = totals[k] = 0, tops[k] = -__builtin_inff();
    for (u32 again = 0; again < 2; again++) { // the largest gates, then the sums
      for (u32 i = 0; i < r->pool; i++) {
        const u32 row = cache_row(r->state, r->table, r->pages, r->page, seq, pos + 1 - r->pool + i);
        const f32 *key = ROW(r->k, r->row, row), *gates = key + r->size, *place = AT(f32, r->gate_bias) + i * r->size;
        for (u32 k = 0; k < r->size; k++) {
          if (!again) {
            tops[k] = MAX(tops[k], gates[k] + place[k]);
            continue;
          }
          const f32 e = exp1(gates[k] + place[k] - tops[k]);
          totals[k] += e, sums[k] += e * key[k];
        }
      }
    }
    for (u32 k = 0; k < r->size; k++) sums[k] /= totals[k];
  }
}

// Blocks of keys that the tokens of a part see.
static u32 blocks_of(const index_scores_call *r) {
  u32 most = 0;
  for (u32 i = 0; i < part_tokens(r->state, r->first, r->tokens); i++)
    most = MAX(most, keys_of(r->state, r->per_token, r->segments, r->pool, r->first + i).end);
  return UP(most, BLOCK);
}

u32 index_scores_chunks(const index_scores_call *r) {
  return divided(part_tokens(r->state, r->first, r->tokens) * blocks_of(r), 1);
}

void index_scores_work(const index_scores_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 blocks = blocks_of(r), total = part_tokens(r->state, r->first, r->tokens) * blocks;
  for (u32 item = part_begin(total, chunk, chunks); item < part_begin(total, chunk + 1, chunks); item++) {
    const u32 m = r->first + item / blocks, seq = sequence(r->state, r->per_token, m);
    const Keys seen = keys_of(r->state, r->per_token, r->segments, r->pool, m);
    const u32 begin = MAX(item % blocks * BLOCK, seen.begin), end = MIN((item % blocks + 1) * BLOCK, seen.end);
    const f32 *q = ROW(r->q, r->q_stride, m), *weights = ROW(r->x, r->x_stride, m) + r->x_first;
    f32 *to = ROW(r->scores, r->width, item / blocks);
    for (u32 s = begin; s < end; s++) {
      const u32 pos = r->pool > 1 ? segment(r->state, r->segments, m).first + (s + 1) * r->pool - 1 : s;
      const size_t row = cache_row(r->state, r->table, r->pages, r->page, seq, pos);
      const f32 *key = AT(f32, r->k) + (r->key_width ? KEY_AT(r, seq, pos) : (row + 1) * r->row - r->size);
      f32 sum = 0;
      for (u32 h = 0; h < r->heads; h++) {
        const f32 weight = r->weighted ? weights[h] * r->scale : r->scale;
        sum += weight * MAX(product(q + h * r->size, key, r->size), 0);
      }
      to[s] = sum;
    }
  }
}

// Put key `new` into the heap below place `root`: down to a leaf, along the lower scores, then up again.
static void sift(u32 *heap, u32 n, const f32 *scores, u32 root, u32 new) {
  u32 at = root;
  for (u32 child; (child = 2 * at + 2) <= n; at = child) {
    if (child == n || scores[heap[child]] > scores[heap[child - 1]]) child--;
    heap[at] = heap[child];
  }
  for (; at > root && scores[heap[(at - 1) / 2]] > scores[new]; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = new;
}

u32 index_choose_chunks(const index_choose_call *r) { return divided(part_tokens(r->state, r->first, r->tokens), 1); }

// As std::partial_sort does it, which decides among equal scores: a heap with the lowest score at its root, which each
// higher one replaces.
void index_choose_work(const index_choose_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(row, part_tokens(r->state, r->first, r->tokens)) {
    const u32 m = r->first + row, first = segment(r->state, r->segments, m).first;
    const u32 positions = position(r->state, r->per_token, m) + 1;
    const Keys seen = keys_of(r->state, r->per_token, r->segments, r->pool, m);
    const u32 n = MIN(r->top_k, seen.end - seen.begin);
    const f32 *scores = ROW(r->scores, r->width, row);
    u32 *heap = AT(u32, r->heap) + (size_t)r->top_k * row, *mask = AT(u32, r->mask) + (size_t)r->width / 32 * m;
    for (u32 i = 0; i < n; i++) heap[i] = seen.begin + i;
    if (n < seen.end - seen.begin) {
      for (u32 root = n / 2; root-- > 0;) sift(heap, n, scores, root, heap[root]);
      for (u32 s = seen.begin + n; s < seen.end; s++)
        if (scores[s] > scores[heap[0]]) sift(heap, n, scores, 0, s);
    }
    memset(mask + first / 32, 0, 4 * ((positions - 1) / 32 - first / 32 + 1));
    for (u32 i = 0; i < n * r->pool; i++) {
      const u32 pos = r->pool > 1 ? first + heap[i / r->pool] * r->pool + i % r->pool : heap[i];
      mask[pos / 32] |= 1u << pos % 32;
    }
    for (u32 pos = positions - (positions - first) % r->pool; pos < positions; pos++) mask[pos / 32] |= 1u << pos % 32;
  }
}
