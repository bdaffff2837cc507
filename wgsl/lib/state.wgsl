// Where the batch's tokens stand, and which pages of the caches hold their sequences: the state buffer. The host writes the
// States before each batch of a prompt; while decoding, sample.wgsl or advance.wgsl advances them. replay.js gets the
// fields' offsets from here.
#param MAX_SMALL_BATCH // tokens of a small batch at most
struct State {
  pos: u32, // position of the batch's first token; in a small batch, of this token
  n: u32, // tokens in the batch
  resampled: u32, // how often the mask has rejected the first choice
  seq: u32, // sequence: its block tables, its tokens and its sampling parameters
}

struct States {
  tokens: array<State, MAX_SMALL_BATCH>, // one per token of a small batch; any other batch has only the first
  // block tables: (group, sequence, page of the context); each sequence's shift of its rotary positions (rope.wgsl); then
  // a record per token: its segment in a packed batch (segments.wgsl), its places in one with media (media.wgsl)
  tables: array<u32>,
}
