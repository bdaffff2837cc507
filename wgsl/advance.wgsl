// Verifies drafts: in a small batch, consecutive rows of a sequence are its newest token and its draft, and sample.wgsl
// sampled the token after each.
//
// Accepts each draft up to the first mismatch, appends the sampled token after it, and finds the next draft, which
// draft_rows.wgsl gives its rows. The sampling noise depends on the position alone, so the text is the same as without
// drafts.
// The next draft copies the tokens after the longest earlier match of the sequence's last tokens (the latest match, if
// several are as long), and goes on with its own tokens where these end. Its length adapts: accepted tokens + 1, or twice
// the draft's length if all of it was accepted.
// Grid (1, rows): the workgroup of a sequence's first row does it.
#param DRAFTS // tokens of a draft at most
#param TOKENS // capacity of a sequence in `tokens`
#param WG
#param MAX_SMALL_BATCH // tokens of the batch at most
#param MAX_MATCH // tokens; a longer match does not rank higher

struct Params {
  min_match: u32, // tokens that must match for a draft
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: array<State, MAX_SMALL_BATCH>;
@bind var<storage, read> chosen: array<u32>;
@bind var<storage, read_write> tokens: array<u32>;
#include "lib/drafting.wgsl"
const POSITION_BITS = 28u;
var<workgroup> best: atomic<u32>; // best match: length in the upper bits, position in the lower
var<workgroup> last_position: u32;

fn match_length(base: u32, i: u32, j: u32) -> u32 { // number of equal tokens, backwards from i and from j
  var length = 0u;
  while (length < MAX_MATCH && length <= i && tokens[base + i - length] == tokens[base + j - length]) {
    length++;
  }
  return length;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.y;
  let n = state[0].n;
  let seq = state[first].seq;
  if (first >= n || (first > 0u && state[first - 1u].seq == seq)) {
    return;
  }
  let base = seq * TOKENS;
  if (t == 0u) {
    let pos = state[first].pos;
    var drafts = 0u;
    while (first + drafts + 1u < n && state[first + drafts + 1u].seq == seq) {
      drafts++;
    }
    var accepted = 0u;
    while (accepted < drafts && tokens[base + pos + 1u + accepted] == chosen[first + accepted]) {
      accepted++;
    }
    tokens[base + pos + 1u + accepted] = chosen[first + accepted];
    last_position = pos + 1u + accepted;
    if (drafts > 0u) {
      drafting[seq].length = select(accepted + 1u, 2u * drafts, accepted == drafts);
    }
    atomicStore(&best, 0u);
  }
  storageBarrier();
  let last = workgroupUniformLoad(&last_position);
  for (var i = t; i < last; i += WG) {
    let length = match_length(base, i, last);
    if (length >= p.min_match) {
      atomicMax(&best, (length << POSITION_BITS) | i);
    }
  }
  workgroupBarrier();
  if (t == 0u) {
    let found = atomicLoad(&best);
    let place = found % (1u << POSITION_BITS);
    let capacity = drafting[seq].end - min(last + 1u, drafting[seq].end);
    let count = select(0u, min(min(max(drafting[seq].length, 1u), DRAFTS), capacity), found > 0u);
    for (var m = 1u; m <= count; m++) { // in order: after `last` come the draft's own tokens
      tokens[base + last + m] = tokens[base + place + m];
    }
    drafting[seq].newest = last;
    drafting[seq].count = count;
  }
}
