// The index of sparse attention: scores of positions, and the highest of them (wgsl/index_scores.wgsl and others).
// rope.c appends its keys.
#include "ops.h"

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

// Blocks of positions that the last token of a part sees.
static u32 blocks_of(const index_scores_call *r) {
  u32 most = 0;
  for (u32 i = 0; i < part_tokens(r->state, r->first, r->tokens); i++)
    most = MAX(most, position(r->state, r->per_token, r->first + i) + 1);
  return UP(most, BLOCK);
}

u32 index_scores_chunks(const index_scores_call *r) {
  return divided(part_tokens(r->state, r->first, r->tokens) * blocks_of(r), 1);
}

void index_scores_work(const index_scores_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 blocks = blocks_of(r), total = part_tokens(r->state, r->first, r->tokens) * blocks;
  for (u32 item = part_begin(total, chunk, chunks); item < part_begin(total, chunk + 1, chunks); item++) {
    const u32 m = r->first + item / blocks, seq = sequence(r->state, r->per_token, m);
    const u32 begin = MAX(item % blocks * BLOCK, segment(r->state, r->segments, m).first);
    const u32 end = MIN((item % blocks + 1) * BLOCK, position(r->state, r->per_token, m) + 1);
    const f32 *q = ROW(r->q, r->q_stride, m), *weights = ROW(r->x, r->x_stride, m) + r->x_first;
    f32 *to = ROW(r->scores, r->width, item / blocks);
    for (u32 s = begin; s < end; s++) {
      const f32 *key = ROW(r->k, r->size, cache_row(r->state, r->table, r->pages, r->page, seq, s));
      f32 sum = 0;
      for (u32 h = 0; h < r->heads; h++) sum += weights[h] * r->scale * MAX(product(q + h * r->size, key, r->size), 0);
      to[s] = sum;
    }
  }
}

// Put position `new` into the heap below place `root`: down to a leaf, along the lower scores, then up again.
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
    const u32 m = r->first + row, begin = segment(r->state, r->segments, m).first;
    const u32 end = position(r->state, r->per_token, m) + 1, n = MIN(r->top_k, end - begin);
    const f32 *scores = ROW(r->scores, r->width, row);
    u32 *heap = AT(u32, r->heap) + (size_t)r->top_k * row, *mask = AT(u32, r->mask) + (size_t)r->width / 32 * m;
    for (u32 i = 0; i < n; i++) heap[i] = begin + i;
    if (n < end - begin) {
      for (u32 root = n / 2; root-- > 0;) sift(heap, n, scores, root, heap[root]);
      for (u32 s = begin + n; s < end; s++)
        if (scores[s] > scores[heap[0]]) sift(heap, n, scores, 0, s);
    }
    memset(mask + begin / 32, 0, 4 * ((end - 1) / 32 - begin / 32 + 1));
    for (u32 i = 0; i < n; i++) mask[heap[i] / 32] |= 1u << heap[i] % 32;
  }
}
