// Where a sequence stands. The host writes it before a prompt's batches; from then on sample.wgsl advances it.
struct State {
  pos: u32, // position of the batch's first token
  n: u32, // tokens in the batch
  resampled: u32, // how often a mask has refused the first choice
  seq: u32, // which sequence it is: its share of the caches, of the tokens and of the requests' parameters
}
