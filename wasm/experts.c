// The router of a mixture of experts, and the sorting of a batch by expert.
#include "ops.h"

// Exclude the experts of all groups but the `used` whose two best experts have the largest sums.
static void exclude_groups(f32 *order, u32 experts, u32 groups, u32 used) {
  const u32 size = experts / groups;
  f32 sums[MAX_EXPERT_GROUPS];
  for (u32 g = 0; g < groups; g++) {
    f32 best = -__builtin_inff(), second = best;
    for (u32 e = g * size; e < (g + 1) * size; e++) {
      if (order[e] > best) second = best, best = order[e];
      else second = MAX(second, order[e]);
    }
    sums[g] = best + second;
  }
  for (u32 g = 0; g < groups; g++) {
    u32 before = 0;
    for (u32 other = 0; other < groups; other++) before += sums[other] > sums[g] || (sums[other] == sums[g] && other < g);
    for (u32 e = g * size; before >= used && e < (g + 1) * size; e++) order[e] = -__builtin_inff();
  }
}

// The experts that the table has for a token.
static const u32 *experts_of_token(const route_call *r, u32 m) {
  const u32 seq = sequence(r->state, r->per_token, m), at = position(r->state, r->per_token, m);
  const u32 token = AT(u32, r->tokens)[(size_t)seq * r->tokens_stride + at];
  return AT(u32, r->table) + (size_t)r->table_stride * MIN(token, r->table_rows - 1);
}

u32 route_chunks(const route_call *r) { return divided(batch_size(r->state), 8); }

void route_work(const route_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 experts = r->experts;
  const f32 *bias = r->bias ? AT(f32, r->bias) : 0, *factors = r->factors ? AT(f32, r->factors) : 0;
  f32 *weight = (f32 *)scratch, *order = weight + experts;
  EACH_ROW(m, batch_size(r->state)) {
    const f32 *logits = ROW(r->logits, r->stride, m);
    f32 top = logits[0], sum = 0;
    for (u32 e = 1; e < experts; e++) top = MAX(top, logits[e]);
    for (u32 e = 0; e < experts; e++) {
      switch (r->gating) {
      case GATING_SIGMOID: weight[e] = 1 / (1 + exp1(-logits[e])); break;
      case GATING_SQRT_SOFTPLUS: weight[e] = __builtin_sqrtf(softplus(logits[e])); break;
      default: weight[e] = exp1(logits[e] - top);
      }
      sum += weight[e];
    }
    for (u32 e = 0; e < experts; e++) {
      if (r->gating == GATING_SOFTMAX) weight[e] /= sum;
      order[e] = bias ? weight[e] + bias[e] : r->groups ? weight[e] : logits[e];
    }
    if (r->groups) exclude_groups(order, experts, r->groups, r->groups_used);
    u32 *chosen = AT(u32, r->chosen) + m * r->used;
    f32 *weights = ROW(r->weights, r->used, m), total = 0;
    const u32 *given = r->table ? experts_of_token(r, m) : 0;
    for (u32 i = 0; i < r->used; i++) {
      if (given) {
        chosen[i] = MIN(given[i], experts - 1), weights[i] = weight[chosen[i]], total += weights[i];
        continue;
      }
      u32 best = 0;
      for (u32 e = 1; e < experts; e++)
        if (order[e] > order[best]) best = e;
      chosen[i] = best / r->sharing, weights[i] = weight[chosen[i]], total += weights[i];
      order[best] = -__builtin_inff();
    }
    const f32 scale = r->normalised ? r->scale / MAX(total, 6.1035e-5f) : r->scale;
    for (u32 i = 0; i < r->used; i++) weights[i] *= factors ? scale * factors[chosen[i]] : scale;
  }
}

u32 group_experts_chunks(const group_experts_call *r) { return batch_size(r->state) > 0; }

void group_experts_work(const group_experts_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 slots = batch_size(r->state) * r->used, *chosen = AT(u32, r->chosen);
  u32 *to = AT(u32, r->slots), *tile = AT(u32, r->tiles), *last = tile + 4 * r->tile_count;
  for (u32 expert = 0, first = 0, end = 0; expert < r->experts; expert++, first = end) {
    for (u32 slot = 0; slot < slots; slot++)
      if (chosen[slot] == expert) to[end++] = slot;
    for (; first < end; first += MIN(r->size, end - first), tile += 4)
      tile[0] = expert, tile[1] = first, tile[2] = MIN(r->size, end - first), tile[3] = 0;
  }
  for (; tile < last; tile++) *tile = 0;
}
