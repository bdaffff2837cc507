// Which positions a token attends to.
#param WINDOW // positions that a token sees, itself included; 0: all
#param CHUNKED // 1: the positions are in chunks of WINDOW; a token sees those of its own chunk up to itself
#param CAUSAL // 0: a token also sees later tokens of its sequence; WINDOW then reaches half to either side
#param WHOLE_MEDIA // 1: a token of a picture sees all of the picture
#include "lib/segments.wgsl"
#include "lib/media.wgsl"

// The first position that token m sees, and the one after the last. With a prefix, m does not see unseen() of them.
// The end does not fall as m rises. Nor does the first position, except between segments that have prefixes.
fn visible(m: u32) -> vec2u {
  let own = batch_position(m);
  let begin = segment_begin(m);
  var first = 0u; // as the sequence itself counts
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
  first = (own - begin) / WINDOW * WINDOW;
#endif
#if WINDOW
  first = max(first, own - begin - min(own - begin, select(WINDOW / 2u, WINDOW - 1u, CAUSAL == 1u)));
#endif
#if PACKED and PREFIXES
  return vec2u(select(begin + first, first, first < own_begin(m) - begin), end);
#else
  return vec2u(begin + first, end);
#endif
}

// The first position that any of tokens `first` to `last` sees, and the one after the last.
fn visible_to(first: u32, last: u32) -> vec2u {
  var seen = vec2u(visible(first).x, visible(last).y);
#if PACKED and PREFIXES
  if (own_begin(first) != own_begin(last)) {
    for (var m = first + 1u; m <= last; m++) {
      seen.x = min(seen.x, visible(m).x);
    }
  }
#endif
  return seen;
}
#if PACKED and PREFIXES

// The positions between token m's prefix and its segment, which it does not see: the first one, and the one after the last.
fn unseen(m: u32) -> vec2u {
  return vec2u(own_begin(m) - segment_begin(m), own_begin(m));
}
#endif
