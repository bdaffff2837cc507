// Position of a sequence. The host writes it before each batch of a prompt; while decoding, sample.wgsl or advance.wgsl
// advances it. replay.js gets the fields' offsets from here.
struct State {
  pos: u32, // position of the batch's first token
  n: u32, // tokens in the batch
  resampled: u32, // how often the mask has rejected the first choice
  seq: u32, // sequence slot: its part of the caches, the tokens and the sampling parameters
}
