// Of the positions up to the token's own, those that it sees: the last ones.
fn attention_seen(length: u32) -> u32 {
#if WINDOW
  return min(length, WINDOW);
#else
  return length;
#endif
}

// Positions that each of the SPLIT workgroups of one key/value head takes: whole tiles, as evenly as they go.
fn attention_share(length: u32) -> u32 {
  let tiles = (length + TS - 1u) / TS;
  return (tiles + SPLIT - 1u) / SPLIT * TS;
}
