// The segments of a packed batch: several sequences computed as one, one after the other in its positions, so that they
// share a block table. A token sees its own segment only, and its prefix: positions from 0 on, in pages that several
// segments have in common. Where segments may have prefixes, each begins with a new page, so gaps are between them.
#param PACKED // 1: the batch is packed, with a segment per token; 0: its tokens are of one sequence
#if PACKED
#param SEGMENTS // index in state.tables of the first token's segment: its first position, its end, its row of the result
#param PREFIXES // index in state.tables of the first token's prefix: its length, gaps before the token; 0: no prefixes
#endif

// First position of token m's sequence. With a prefix, the position where it would begin if the prefix were next to the
// segment.
fn segment_begin(m: u32) -> u32 {
#if PACKED
  return state.tables[SEGMENTS + 3u * m];
#else
  return 0u;
#endif
}

// Position after the last one of token m's sequence; of an unpacked one, after this batch.
fn segment_end(m: u32) -> u32 {
#if PACKED
  return state.tables[SEGMENTS + 3u * m + 1u];
#else
  return state.tokens[0].pos + state.tokens[0].n;
#endif
}
#if PACKED

// Row of the result that token m is pooled into.
fn segment_row(m: u32) -> u32 {
  return state.tables[SEGMENTS + 3u * m + 2u];
}

// First position of token m's segment itself, after its prefix.
fn own_begin(m: u32) -> u32 {
#if PREFIXES
  return segment_begin(m) + state.tables[PREFIXES + 2u * m];
#else
  return segment_begin(m);
#endif
}
#endif

// Position of token m of a batch with one State.
fn batch_position(m: u32) -> u32 {
#if PACKED and PREFIXES
  return state.tokens[0].pos + m + state.tables[PREFIXES + 2u * m + 1u];
#else
  return state.tokens[0].pos + m;
#endif
}
