// Samplers: from rows of logits to tokens. py_engine/plan/sampler_ops.py says which op does what.
#include "ops.h"

typedef struct {
  u32 wanted, seq, at, again; // wgsl/lib/sampling.wgsl
} Row;

#define LOGITS(r, m) ROW(r->logits, r->stride, m)
#define MASK_BIT(words, i) (AT(u32, words)[(i) / 32] >> (i) % 32 & 1)

// The index of the largest value, the first of equal ones.
static u32 largest(const f32 *x, u32 size) {
  v128_t top[4];
  for (u32 j = 0; j < 4; j++) top[j] = splat(-__builtin_inff());
  u32 i = 0;
  for (; i + 16 <= size; i += 16)
#pragma unroll
    for (u32 j = 0; j < 4; j++) top[j] = wasm_f32x4_pmax(top[j], wasm_v128_load(x + i + 4 * j));
  f32 most = max4(wasm_f32x4_pmax(wasm_f32x4_pmax(top[0], top[1]), wasm_f32x4_pmax(top[2], top[3])));
  for (; i < size; i++) most = MAX(most, x[i]);
  const v128_t wanted = splat(most);
  for (i = 0; i + 4 <= size; i += 4)
    if (wasm_v128_any_true(wasm_f32x4_eq(wasm_v128_load(x + i), wanted))) break;
  for (; i < size; i++)
    if (x[i] == most) return i;
  return 0; // none is a number
}

// -- the rows to sample from

u32 sample_best_chunks(const sample_best_call *r) { return MIN(batch_size(r->state), r->rows_most); }

void sample_best_work(const sample_best_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state);
  EACH_ROW(m, MIN(n, r->rows_most)) {
    const State *s = states(r->state) + m;
    AT(Row, r->rows)[m] = (Row){1, s->seq, s->pos + (r->per_token ? 1 : n), 0};
    AT(u32, r->best)[m] = largest(LOGITS(r, m), r->vocab);
  }
}

static f32 power(f32 base, i32 exponent) { return (f32)exp_double(exponent * log1(base)); }

// Whether a token ends a sequence that DRY compares: media do, too.
INLINE u32 breaks(const sample_shape_call *r, u32 breakers, u32 token) {
  return token >= r->vocab || MASK_BIT(breakers, token);
}

// DRY: lower the logits of tokens that would continue a repetition of the last tokens.
static void penalise_repeats(const sample_shape_call *r, const Sampling *s, const u32 *history, u32 end, u32 breakers,
                             u32 *longest_of, f32 *x) {
  const u32 size = MIN(end, s->dry_penalty_last_n);
  history += end - size;
  u32 longest = 0;
  while (longest < MIN(size, s->dry_longest) && !breaks(r, breakers, history[size - 1 - longest])) longest++;
  if (longest < s->dry_allowed_length) return;
  memset(longest_of, 0, 4 * r->vocab);
  for (u32 i = 0; i + 1 < size; i++) { // a repetition that ends with token i
    u32 length = 0;
    while (length < longest && length <= i && history[i - length] == history[size - 1 - length]) length++;
    const u32 token = history[i + 1];
    if (length >= s->dry_allowed_length && !breaks(r, breakers, token)) longest_of[token] = MAX(longest_of[token], length);
  }
  for (u32 i = 1; i < size; i++) {
    const u32 token = history[i];
    if (token >= r->vocab) continue;
    const u32 length = longest_of[token];
    longest_of[token] = 0; // once
    if (length) x[token] -= s->dry_multiplier * power(s->dry_base, (i32)(length - s->dry_allowed_length));
  }
}

static void shape(const sample_shape_call *r, const Sampling *s, const u32 *history, u32 end, u32 rules, f32 *x,
                  u32 *counts) {
  const u32 breakers = rules + r->bit_words;
  const u32 *pairs = AT(u32, breakers + r->bit_words);
  for (u32 i = 0; i < s->biases; i++) x[pairs[2 * i]] += *(const f32 *)(pairs + 2 * i + 1);
  memset(counts, 0, 4 * r->vocab);
  for (u32 i = end - MIN(end, s->repeat_last_n); i < end; i++) {
    const u32 token = history[i];
    if (token >= r->vocab || counts[token]) continue;
    counts[token] = 1;
    x[token] = x[token] > 0 ? x[token] * (1 / s->repeat_penalty) : x[token] * s->repeat_penalty;
  }
  if (s->frequency_penalty != 0 || s->presence_penalty != 0) {
    memset(counts, 0, 4 * r->vocab);
    for (u32 i = s->answer; i < end; i++)
      if (history[i] < r->vocab) counts[history[i]]++;
    for (u32 i = s->answer; i < end; i++) {
      const u32 token = history[i];
      if (token >= r->vocab) continue;
      const u32 count = counts[token];
      counts[token] = 0;
      if (count) x[token] -= count * s->frequency_penalty + s->presence_penalty;
    }
  }
  if (s->dry_multiplier > 0) penalise_repeats(r, s, history, end, breakers, counts, x);
  for (u32 i = 0; i < s->biases; i++)
    if (*(const f32 *)(pairs + 2 * i + 1) <= -100) x[pairs[2 * i]] = BANNED;
  for (u32 i = 0; i < r->vocab; i++) x[i] = MAX(x[i], BANNED);
}

u32 sample_shape_chunks(const sample_shape_call *r) { return MIN(batch_size(r->state), r->rows_most); }

void sample_shape_work(const sample_shape_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const u32 n = batch_size(r->state);
  EACH_ROW(m, MIN(n, r->rows_most)) {
    const State *state = states(r->state) + m;
    const Sampling *s = AT(Sampling, r->sampling) + state->seq;
    const u32 *tokens = AT(u32, r->tokens) + state->seq * r->tokens_stride;
    const u32 rules = r->rules + r->rules_words * state->seq;
    u32 at = state->pos, wanted = 1;
    if (r->masked) wanted = s->masked && !MASK_BIT(rules, tokens[at]);
    else at += r->per_token ? 1 : n;
    AT(Row, r->rows)[m] = (Row){wanted, state->seq, at, r->masked};
    if (!wanted) continue;
    f32 *x = ROW(r->shaped, r->stride, m);
    memcpy(x, LOGITS(r, m), 4 * r->vocab);
    shape(r, s, tokens, at, rules, x, (u32 *)scratch);
    if (r->masked)
      for (u32 i = 0; i < r->vocab; i++)
        if (!MASK_BIT(rules, i)) x[i] = BANNED;
    AT(u32, r->best)[m] = largest(x, r->vocab);
  }
}

// -- drawing

// PCG's output permutation (O'Neill 2014), chained over seed, position and token.
static u32 hashed(u32 seed, u32 pos, u32 token) {
  const u32 words[3] = {0x9e3779b9u, pos, token};
  u32 h = seed;
  for (u32 i = 0; i < 3; i++) {
    h = (h ^ words[i]) * 747796405u + 2891336453u;
    h = ((h >> ((h >> 28) + 4)) ^ h) * 277803737u;
    h = (h >> 22) ^ h;
  }
  return h;
}

// In (0, 1), both excluded.
static f32 uniform(u32 bits) { return MIN(((f32)bits + 0.5f) * 0x1p-32f, 0.99999994f); }

static f32 gumbel(u32 bits) {
  const f64 u = uniform(bits);
  const f64 exponential = u < 0.01 ? u * (1 + u * (0.5 + u / 3)) : -log1(1 - u);
  return (f32)-log1(exponential);
}
#define MOST_GUMBEL 23.0f // the noise of the smallest `uniform`

// An integer in the order of the floats.
INLINE u32 key_of(f32 x) {
  union {
    f32 value;
    u32 bits;
  } u = {x};
  return u.bits >> 31 ? ~u.bits : u.bits | 0x80000000u;
}

// What is left of the vocabulary while filters are applied.
typedef struct {
  const f32 *logits;
  f32 *mass;  // e^(logit - top); 0: filtered out
  f32 *order; // the order of a cut-off, ascending
  f64 *bins;
  f32 top; // largest logit
  u32 size;
} Left;

#define BINS 2048

INLINE f64 total(const Left *x) {
  f64 sum = 0;
  for (u32 i = 0; i < x->size; i++) sum += x->mass[i];
  return sum;
}

// Drop all whose order is behind the one at which the mass reaches `goal`: the key is found by its upper, middle and lower
// bits. With `count`, every token has mass 1.
static void cut(Left *x, f64 goal, u32 count) {
  static const u8 shifts[3] = {21, 10, 0}, widths[3] = {11, 11, 10};
  u32 key = 0, known = 0; // the bits of the key that are known
  f64 before = 0;
  for (u32 step = 0; step < 3; step++) {
    const u32 bins = 1u << widths[step];
    memset(x->bins, 0, 8 * bins);
    for (u32 i = 0; i < x->size; i++) {
      const u32 k = key_of(x->order[i]);
      if (x->mass[i] > 0 && (k & known) == key) x->bins[k >> shifts[step] & (bins - 1)] += count ? 1 : x->mass[i];
    }
    u32 bin = 0, last = 0;
    for (; bin < bins; bin++) {
      if (x->bins[bin] == 0) continue;
      last = bin;
      if (before + x->bins[bin] >= goal) break;
      before += x->bins[bin];
    }
    if (bin == bins) { // rounding: all are within the goal
      bin = last, before -= x->bins[last];
    }
    key |= bin << shifts[step], known |= (bins - 1) << shifts[step];
  }
  for (u32 i = 0; i < x->size; i++)
    if (key_of(x->order[i]) > key) x->mass[i] = 0;
}

static void drop_below(Left *x, f64 bound) {
  for (u32 i = 0; i < x->size; i++)
    if (!(x->logits[i] >= bound)) x->mass[i] = 0;
}

static void filter_deviation(Left *x, const Sampling *s) {
  f64 mean = 0, squares = 0;
  u32 n = 0;
  for (u32 i = 0; i < x->size; i++)
    if (x->logits[i] > BANNED) mean += x->logits[i], n++;
  mean /= n;
  for (u32 i = 0; i < x->size; i++)
    if (x->logits[i] > BANNED) squares += (x->logits[i] - mean) * (x->logits[i] - mean);
  drop_below(x, x->top - s->top_n_sigma * __builtin_sqrt(squares / n));
}

static void filter_typical(Left *x, const Sampling *s) {
  const f64 sum = total(x), log_sum = log1(sum);
  f64 entropy = 0;
  for (u32 i = 0; i < x->size; i++) {
    if (x->mass[i] <= 0) continue;
    const f64 log_p = x->logits[i] - x->top - log_sum;
    entropy -= x->mass[i] / sum * log_p;
  }
  for (u32 i = 0; i < x->size; i++)
    x->order[i] = x->mass[i] > 0 ? (f32)__builtin_fabs(-(x->logits[i] - x->top - log_sum) - entropy) : 0;
  cut(x, s->typical_p * sum, 0);
}

static void filter_xtc(Left *x, const Sampling *s, u32 at) {
  if (uniform(hashed(s->seed, at, -1u)) > s->xtc_probability) return;
  const f64 least = s->xtc_threshold * total(x);
  f32 lowest = __builtin_inff();
  for (u32 i = 0; i < x->size; i++)
    if (x->mass[i] > 0 && x->mass[i] >= least && x->logits[i] > BANNED) lowest = MIN(lowest, x->logits[i]);
  for (u32 i = 0; i < x->size; i++)
    if (x->logits[i] > lowest) x->mass[i] = 0;
}

// Apply the filters in llama.cpp's order.
static void filter(Left *x, const Sampling *s, u32 at) {
  for (u32 i = 0; i < x->size; i += 4) {
    const v128_t e = exp4(wasm_f32x4_sub(wasm_v128_load(x->logits + i), splat(x->top)));
    wasm_v128_store(x->mass + i, wasm_f32x4_pmax(e, splat(1e-37f))); // only filters set 0
  }
  if (s->top_n_sigma > 0) filter_deviation(x, s);
  const u32 by_logit = (s->top_k > 0 && s->top_k < x->size) || s->top_p < 1;
  for (u32 i = 0; by_logit && i < x->size; i++) x->order[i] = -x->logits[i];
  if (s->top_k > 0 && s->top_k < x->size) cut(x, s->top_k, 1);
  if (s->typical_p < 1) {
    filter_typical(x, s);
    for (u32 i = 0; i < x->size; i++) x->order[i] = -x->logits[i];
  }
  if (s->top_p < 1) cut(x, s->top_p * total(x), 0);
  if (s->min_p > 0) {
    f32 first = -__builtin_inff();
    for (u32 i = 0; i < x->size; i++)
      if (x->mass[i] > 0) first = MAX(first, x->logits[i]);
    drop_below(x, first + log1(s->min_p));
  }
  if (s->xtc_probability > 0) filter_xtc(x, s, at);
}

// The temperature for the tokens that are left: it follows their entropy where there is a dynatemp_range.
static f32 temperature_of(const Left *x, const Sampling *s) {
  f64 sum = 0, moment = 0;
  u32 n = 0;
  for (u32 i = 0; s->dynatemp_range > 0 && i < x->size; i++) {
    if (x->mass[i] <= 0 || !(x->logits[i] > BANNED)) continue;
    sum += x->mass[i], moment += x->mass[i] * (x->top - x->logits[i]), n++;
  }
  if (n < 2) return s->temperature;
  const f64 entropy = (log1(sum) + moment / sum) / log1(n);
  const f32 least = MAX(s->temperature - s->dynatemp_range, 0), most = s->temperature + s->dynatemp_range;
  const f64 part = exp_double(s->dynatemp_exponent * log1(MIN(MAX(entropy, 1e-30), 1)));
  const f32 found = least + (most - least) * (f32)part;
  return found >= LEAST_TEMPERATURE ? found : 0;
}

INLINE u32 is_greedy(const Sampling *s) {
  return s->temperature <= 0 && s->dynatemp_range <= 0 && s->xtc_probability <= 0 && s->typical_p >= 1;
}

u32 sample_draw_chunks(const sample_draw_call *r) { return MIN(batch_size(r->state), r->rows_most); }

void sample_draw_work(const sample_draw_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  f64 *bins = (f64 *)scratch;
  f32 *mass = (f32 *)(bins + BINS), *order = mass + UP(r->vocab, 4) * 4;
  EACH_ROW(m, MIN(batch_size(r->state), r->rows_most)) {
    const Row *row = AT(Row, r->rows) + m;
    const Sampling *s = AT(Sampling, r->sampling) + row->seq;
    if (!row->wanted || is_greedy(s)) continue;
    const f32 *logits = LOGITS(r, m), top = logits[AT(u32, r->best)[m]];
    const u32 at = row->at + s->shifted;
    u32 best = AT(u32, r->best)[m];
    if (top > BANNED) { // the filters need a token
      Left left = {logits, mass, order, bins, top, r->vocab};
      filter(&left, s, at);
      const f32 temperature = temperature_of(&left, s);
      f32 most = -__builtin_inff();
      for (u32 i = 0; i < r->vocab; i++) {
        if (mass[i] <= 0) continue;
        f32 value = logits[i] - top;
        if (temperature > 0) {
          value /= temperature;
          if (value + MOST_GUMBEL < most) continue;
          value += gumbel(hashed(s->seed, at, i));
        }
        if (value > most) most = value, best = i;
      }
    }
    AT(u32, r->drawn)[m] = best;
  }
}

u32 sample_chunks(const sample_call *r) { return 1; }

void sample_work(const sample_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  for (u32 m = 0, n = MIN(batch_size(r->state), r->rows_most); m < n; m++) {
    const Row *row = AT(Row, r->rows) + m;
    if (!row->wanted) continue;
    const u32 greedy = !r->drawn || is_greedy(AT(Sampling, r->sampling) + row->seq);
    const u32 token = AT(u32, greedy ? r->best : r->drawn)[m];
    if (r->chosen) {
      AT(u32, r->chosen)[m] = token;
      continue;
    }
    State *s = states(r->state) + m;
    AT(u32, r->tokens)[row->seq * r->tokens_stride + row->at] = token;
    s->pos = row->at, s->resampled += row->again;
    if (!r->per_token) s->n = 1;
  }
}

// -- log-probabilities

u32 logprobs_chunks(const logprobs_call *r) { return MIN(batch_size(r->state), r->rows_most); }

void logprobs_work(const logprobs_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  EACH_ROW(m, MIN(batch_size(r->state), r->rows_most)) {
    const State *s = states(r->state) + m;
    const f32 *logits = LOGITS(r, m), top = logits[largest(logits, r->vocab)];
    f64 sum = 0;
    for (u32 i = 0; i < r->vocab; i += 4) {
      f32 e[4];
      wasm_v128_store(e, exp4(wasm_f32x4_sub(wasm_v128_load(logits + i), splat(top))));
      for (u32 k = 0; k < MIN(4, r->vocab - i); k++) sum += e[k];
    }
    const f64 log_sum = log1(sum);
    const u32 count = MIN(AT(Sampling, r->sampling)[s->seq].logprobs, MAX_LOGPROBS);
    u32 ids[MAX_LOGPROBS + 1], n = 0; // the likeliest so far, in order
    for (u32 i = 0; i < r->vocab && count; i++) {
      if (n == count && logits[i] <= logits[ids[n - 1]]) continue;
      u32 at = n < count ? n++ : n - 1;
      for (; at && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
      ids[at] = i;
    }
    u32 *row = AT(u32, r->logprobs) + 2 * (1 + MAX_LOGPROBS) * (s->seq * LOGPROB_ROWS + s->pos % LOGPROB_ROWS);
    for (u32 i = 0; i <= MAX_LOGPROBS; i++) {
      const u32 id = i == 0 ? AT(u32, r->tokens)[s->seq * r->tokens_stride + s->pos] : i <= n ? ids[i - 1] : -1u;
      row[2 * i] = id;
      if (id != -1u) ((f32 *)row)[2 * i + 1] = (f32)(logits[id] - top - log_sum);
    }
  }
}
