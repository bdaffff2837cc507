// Drafts: a small batch verifies them, and prompt lookup finds the next ones. wgsl/advance.wgsl, draft_rows.wgsl and
// draft_states.wgsl are the same on the GPU.
#include "ops.h"

// The number of equal tokens, backwards from i and from j.
static u32 match_length(const u32 *tokens, u32 i, u32 j) {
  u32 length = 0;
  while (length < MAX_MATCH && length <= i && tokens[i - length] == tokens[j - length]) length++;
  return length;
}

// The Drafting of a sequence (drafting.wgsl).
typedef struct {
  u32 end, length, newest, count;
} Drafting;
#define DRAFTING(r, seq) (AT(Drafting, (r)->drafting) + (seq))

// How many consecutive rows of a small batch, from row `first` on, are of the same sequence.
static u32 rows_of_sequence(const State *s, u32 first) {
  u32 end = first + 1;
  while (end < s->n && s[end].seq == s[first].seq) end++;
  return end - first;
}

// Verifies the draft of `drafts` tokens after the token of a State, and finds the next one.
static void advance_sequence(const advance_call *r, const State *s, u32 drafts, const u32 *chosen) {
  u32 *tokens = AT(u32, r->tokens) + s->seq * r->tokens_stride, accepted = 0;
  Drafting *d = DRAFTING(r, s->seq);
  while (accepted < drafts && tokens[s->pos + 1 + accepted] == chosen[accepted]) accepted++;
  const u32 last = s->pos + 1 + accepted;
  tokens[last] = chosen[accepted];
  if (drafts) d->length = accepted == drafts ? 2 * drafts : accepted + 1;
  u32 best = 0, match = 0;
  for (u32 i = 0; i < last; i++) {
    const u32 length = match_length(tokens, i, last);
    if (length && length >= best) best = length, match = i;
  }
  d->newest = last, d->count = 0;
  if (best < r->min_match) return;
  const u32 room = d->end > last + 1 ? d->end - last - 1 : 0;
  d->count = MIN(MIN(MAX(d->length, 1), r->drafts), room);
  for (u32 i = 1; i <= d->count; i++) tokens[last + i] = tokens[match + i];
}

u32 advance_chunks(const advance_call *r) { return 1; }

void advance_work(const advance_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  const State *s = states(r->state);
  for (u32 first = 0, n; first < s->n; first += n) {
    n = rows_of_sequence(s, first);
    advance_sequence(r, s + first, n - 1, AT(u32, r->chosen) + first);
  }
}

u32 draft_rows_chunks(const draft_rows_call *r) { return 1; }

void draft_rows_work(const draft_rows_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  State *s = states(r->state);
  u32 sequences[SHORT_BATCH], given[SHORT_BATCH], count = 0, rows = 0;
  for (u32 first = 0; first < s->n; first += rows_of_sequence(s, first)) sequences[count] = s[first].seq, given[count++] = 0;
  u32 left = SHORT_BATCH - count;
  for (u32 turn = 0; turn < SHORT_BATCH; turn++)
    for (u32 i = 0; i < count && left; i++)
      if (DRAFTING(r, sequences[i])->count > turn) given[i]++, left--;
  for (u32 i = 0; i < count; i++)
    for (u32 m = 0; m <= given[i]; m++, rows++)
      s[rows].pos = DRAFTING(r, sequences[i])->newest + m, s[rows].seq = sequences[i];
  s->n = rows;
}

// Rows of masked tokens after the newest one of each sequence, and last the newest ones.
static void mask_drafts(const draft_states_call *r, State *s) {
  State newest[SHORT_BATCH];
  const u32 n = s->n, drafts = r->drafts;
  for (u32 m = 0; m < n; m++) newest[m] = s[m];
  for (u32 m = 0; m < n; m++) {
    u32 *tokens = AT(u32, r->tokens) + newest[m].seq * r->tokens_stride;
    for (u32 i = 0; i < drafts; i++) {
      s[m * drafts + i].pos = newest[m].pos + 1 + i, s[m * drafts + i].seq = newest[m].seq;
      tokens[newest[m].pos + 1 + i] = r->mask;
    }
    s[n * drafts + m].pos = newest[m].pos, s[n * drafts + m].seq = newest[m].seq;
  }
  s->n = n * (1 + drafts);
}

// The masked tokens' rows, each at the position before the token that it predicts.
static void keep_masked(const draft_states_call *r, State *s) {
  u32 masked = 0;
  for (u32 m = 0; m < s->n; m++)
    if (s[m].pos > DRAFTING(r, s[m].seq)->newest) s[m].pos--, masked++;
  s->n = masked;
}

u32 draft_states_chunks(const draft_states_call *r) { return 1; }

void draft_states_work(const draft_states_call *r, u32 chunk, u32 chunks, u8 *scratch) {
  State *s = states(r->state);
  const u32 n = s->n, alone = n == 1;
  if (r->stage == STAGE_MASKED) return keep_masked(r, s);
  for (u32 m = 0; m < n && r->stage != STAGE_NEWEST; m++) {
    Drafting *d = DRAFTING(r, s[m].seq);
    if (r->stage == STAGE_END) d->count = s[m].pos - d->newest;
    else d->newest = s[m].pos;
    if (r->anchor) tables(r->state)[r->anchor + s[m].seq] = s[m].pos;
  }
  if (r->stage == STAGE_NEWEST) s->n = n / 2;
  if (r->stage == STAGE_BLOCK) mask_drafts(r, s);
  if (r->stage != STAGE_PAIRS || (alone && !s->pos)) return;
  for (u32 m = 0; m < n; m++) {
    const u32 pos = s[m].pos, before = MAX(pos, 1) - 1;
    s[n + m].pos = alone ? pos : before, s[n + m].seq = s[m].seq;
    if (alone) s[m].pos = before;
  }
  s->n = 2 * n;
}
