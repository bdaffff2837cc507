// Verifies a draft: a small batch is one sequence's last token and its draft, and sample.wgsl sampled the token after each.
//
// Accepts the draft up to the first mismatch, appends the sampled token after it, and makes the next draft. The sampling
// noise depends on the position alone, so the text is the same as without drafts.
// The next draft copies the tokens after the longest earlier match of the sequence's last tokens (the latest match, if
// several are as long). Its length adapts: accepted tokens + 1, or twice the draft's length if all of it was accepted.
// One workgroup.
#param DRAFTS // draft tokens at most
#param TOKENS // capacity of a sequence in `tokens`
#param WG
#param MAX_SMALL_BATCH // tokens of the batch at most
#param MAX_MATCH // tokens; a longer match does not rank higher

struct Params {
  min_match: u32, // tokens that must match for a draft
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> state: array<State, MAX_SMALL_BATCH>;
@bind var<storage, read> chosen: array<u32>;
@bind var<storage, read_write> tokens: array<u32>;
#include "lib/drafting.wgsl"
const POSITION_BITS = 28u;
var<workgroup> best: atomic<u32>; // best match: length in the upper bits, position in the lower
var<workgroup> last_position: u32;

fn match_length(i: u32, j: u32) -> u32 { // number of equal tokens, backwards from i and from j
  let base = state[0].seq * TOKENS;
  var length = 0u;
  while (length < MAX_MATCH && length <= i && tokens[base + i - length] == tokens[base + j - length]) {
    length++;
  }
  return length;
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  let seq = state[0].seq;
  let base = seq * TOKENS;
  if (t == 0u) {
    let pos = state[0].pos;
    let drafts = state[0].n - 1u;
    var accepted = 0u;
    while (accepted < drafts && tokens[base + pos + 1u + accepted] == chosen[accepted]) {
      accepted++;
    }
    tokens[base + pos + 1u + accepted] = chosen[accepted];
    last_position = pos + 1u + accepted;
    if (drafts > 0u) {
      drafting.length = select(accepted + 1u, 2u * drafts, accepted == drafts);
    }
    atomicStore(&best, 0u);
  }
  storageBarrier();
  let last = workgroupUniformLoad(&last_position);
  for (var i = t; i < last; i += WG) {
    let length = match_length(i, last);
    if (length >= p.min_match) {
      atomicMax(&best, (length << POSITION_BITS) | i);
    }
  }
  workgroupBarrier();
  if (t == 0u) {
    let found = atomicLoad(&best);
    let place = found % (1u << POSITION_BITS);
    var n = 1u;
    if (found > 0u) {
      n += min(min(last - place, DRAFTS), min(max(drafting.length, 1u), drafting.end - min(last + 1u, drafting.end)));
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
}
