// After sample.wgsl has chosen for a few tokens: writes the choices behind their sequences and moves the states on.
//
// DRAFTS 0: each token is of another sequence. Else all are of one: the last of it and drafts at those that follow.
// What was chosen for a token holds if the guess before it was right, so the first choice always does; the noise of
// the choice depends on the position alone, so the text is the same as without guessing. The next drafts are what
// followed when the sequence's last tokens were there before (the latest of the longest such places): as many as
// proved right lately, twice that after all of them did.
#param DRAFTS // drafts at most
#param TOKENS // room for each sequence in `tokens`
#param WG
#param MAX_SMALL_BATCH

struct Params {
  least: u32, // tokens that must have been there before, one after the other
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
@bind var<storage, read> chosen: array<u32>;
@bind var<storage, read_write> tokens: array<u32>;
#if DRAFTS
#param MAX_MATCH // tokens; a longer match ranks no higher
struct Drafting {
  end: u32, // position behind the last one that may be computed; written by the host
  most: u32, // drafts to make next
}
@bind var<storage, read_write> drafting: Drafting;
const PLACE = 28u; // bits of a position
var<workgroup> best: atomic<u32>; // length, then position
var<workgroup> at: u32;

fn alike(i: u32, j: u32) -> u32 { // how many tokens up to i equal those up to j
  let base = state[0].seq * TOKENS;
  var length = 0u;
  while (length < MAX_MATCH && length <= i && tokens[base + i - length] == tokens[base + j - length]) {
    length++;
  }
  return length;
}
#endif

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
#if DRAFTS
  let seq = state[0].seq;
  let base = seq * TOKENS;
  if (t == 0u) {
    let pos = state[0].pos;
    let drafts = state[0].n - 1u;
    var right = 0u;
    while (right < drafts && tokens[base + pos + 1u + right] == chosen[right]) {
      right++;
    }
    tokens[base + pos + 1u + right] = chosen[right];
    at = pos + 1u + right;
    if (drafts > 0u) {
      drafting.most = select(right + 1u, 2u * drafts, right == drafts);
    }
    atomicStore(&best, 0u);
  }
  storageBarrier();
  let last = workgroupUniformLoad(&at);
  for (var i = t; i < last; i += WG) {
    let length = alike(i, last);
    if (length >= p.least) {
      atomicMax(&best, (length << PLACE) | i);
    }
  }
  workgroupBarrier();
  if (t == 0u) {
    let found = atomicLoad(&best);
    let place = found % (1u << PLACE);
    var n = 1u;
    if (found > 0u) {
      n += min(min(last - place, DRAFTS), min(max(drafting.most, 1u), drafting.end - min(last + 1u, drafting.end)));
    }
    for (var m = 0u; m < n; m++) {
      state[m].pos = last + m;
      state[m].seq = seq;
      if (m > 0u) {
        tokens[base + last + m] = tokens[base + place + m];
      }
    }
    state[0].n = n;
  }
#else
  if (t < state[0].n) {
    let pos = state[t].pos + 1u;
    tokens[state[t].seq * TOKENS + pos] = chosen[t];
    state[t].pos = pos;
  }
#endif
}
