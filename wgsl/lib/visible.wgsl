// Which positions a token attends to.
#param WINDOW // positions that a token sees, itself included; 0: all
#param CHUNKED // 1: the positions are in chunks of WINDOW; a token sees those of its own chunk up to itself
#param CAUSAL // 0: a token also sees later tokens of its sequence; WINDOW then reaches half to either side
#param WHOLE_MEDIA // 1: a token of a picture sees all of the picture
#include "lib/segments.wgsl"
#include "lib/media.wgsl"

// The first position that token m sees, and the one after the last. Neither falls as m rises.
fn visible(m: u32) -> vec2u {
  let own = state.tokens[0].pos + m;
  var first = segment_begin(m);
#if MEDIA and WHOLE_MEDIA
  var end = media_end(m);
#else
  var end = own + 1u;
#endif
#if not CAUSAL
  end = segment_end(m);
#if WINDOW
  end = min(end, own + WINDOW / 2u + 1u);
#endif
#endif
#if CHUNKED
  first += (own - first) / WINDOW * WINDOW;
#endif
#if WINDOW
  first = max(first, own - min(own, select(WINDOW / 2u, WINDOW - 1u, CAUSAL == 1u)));
#endif
  return vec2u(first, end);
}
