// Splits the positions of one key/value head among SPLIT workgroups.
#param PART // of an encoder-decoder model: "encoder", the rows before the decoder's tokens, or "decoder", its own; else 0
#if PART
#param SHIFTS // index in state.tables of the first sequence's shift: minus the number of the encoder's rows
#endif
#param MUTUAL // 1: a token sees all tokens of its sequence in the batch (models/dflash.py); the batch is small, with a State per token
#param FROM // the first position that is seen, where others are at the beginning (models/eagle.py); a token before it sees itself

#if MUTUAL
// The position after the last one of token m's sequence in the batch.
fn block_end(m: u32) -> u32 {
  var last = 0u;
  for (var i = 0u; i < count(); i++) {
    last = max(last, select(0u, state.tokens[i].pos, state.tokens[i].seq == seq_of(m)));
  }
  return last + 1u;
}

#endif
// The first position that token m sees, and the one after the last. It sees its own; not so with ANCHOR, because no cache
// has its keys and values, nor with PART "encoder".
fn visible_range(m: u32) -> vec2u {
  let end = pos_of(m) + 1u;
#if PART
  let encoded = u32(-bitcast<i32>(state.tables[SHIFTS + seq_of(m)]));
#if PART == "encoder"
  return vec2u(0u, encoded);
#else
  return vec2u(min(encoded, end), end);
#endif
#else
#if CHUNKED
  return vec2u((end - 1u) / WINDOW * WINDOW, end);
#else
#if MUTUAL
  let last = block_end(m);
#else
#if ANCHOR
  let last = end - 1u;
#else
  let last = end;
#endif
#endif
#if WINDOW
  return vec2u(end - min(end, WINDOW), last);
#else
#if FROM
  return vec2u(min(u32(FROM), end - 1u), last);
#else
  return vec2u(0u, last);
#endif
#endif
#endif
#endif
}

// Positions of one split: whole tiles of TS, spread as evenly as possible.
fn split_size(length: u32) -> u32 {
  let tiles = (length + TS - 1u) / TS;
  return (tiles + SPLIT - 1u) / SPLIT * TS;
}
