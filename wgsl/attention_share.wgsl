// Positions that each of the SPLIT workgroups of one key/value head takes: whole tiles, as evenly as they go.
fn attention_share(length: u32) -> u32 {
  let tiles = (length + TS - 1u) / TS;
  return (tiles + SPLIT - 1u) / SPLIT * TS;
}
