// Splits the positions of one key/value head among SPLIT workgroups.

// Number of positions that the last of `length` tokens sees, itself included. They are the sequence's last ones.
fn visible_positions(length: u32) -> u32 {
#if CHUNKED
  return (length - 1u) % WINDOW + 1u;
#else
#if WINDOW
  return min(length, WINDOW);
#else
  return length;
#endif
#endif
}

// Positions of one split: whole tiles of TS, spread as evenly as possible.
fn split_size(length: u32) -> u32 {
  let tiles = (length + TS - 1u) / TS;
  return (tiles + SPLIT - 1u) / SPLIT * TS;
}
