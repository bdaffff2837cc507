// Sampling parameters of a request, written by the host (packed by sampling.py); the samplers' rows, bounds and noise.
#param MAX_SEQUENCES // sequences that run side by side
#param MAX_SMALL_BATCH // rows of a small batch
#param BANNED // logit of a token that cannot be sampled
struct Sampling {
  temperature: f32, // 0: greedy
  top_k: u32, // 0: off
  top_p: f32,
  min_p: f32,
  seed: u32,
  shifted: u32, // tokens dropped from the context: added to the position, so that the noise continues
  typical_p: f32,
  xtc_probability: f32,
  xtc_threshold: f32,
  answer: u32, // position of the completion's first token
  presence_penalty: f32,
  frequency_penalty: f32,
  repeat_penalty: f32,
  repeat_last_n: u32, // last tokens that repeat_penalty counts
  dry_multiplier: f32,
  dry_base: f32,
  dry_allowed_length: u32,
  dry_penalty_last_n: u32,
  dry_longest: u32, // longer repetitions count as this long
  logprobs: u32, // likeliest tokens to return
  top_n_sigma: f32, // 0 or less: off
  biases: u32, // tokens with a bias
  masked: u32, // 1: the mask holds the allowed tokens
  dynatemp_range: f32, // 0: off
  dynatemp_exponent: f32,
}

fn is_greedy(s: Sampling) -> bool { // without these the likeliest token is sampled, which every filter keeps
  return s.temperature <= 0.0 && s.dynatemp_range <= 0.0 && s.xtc_probability <= 0.0 && s.typical_p >= 1.0;
}

fn needs_entropy(s: Sampling) -> bool {
  return s.typical_p < 1.0 || s.dynatemp_range > 0.0;
}

fn is_shaped(s: Sampling) -> bool { // whether the parameters change logits
  let penalised = s.repeat_last_n > 0u || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
  return penalised || s.dry_multiplier > 0.0 || s.biases > 0u;
}

fn is_ranked(s: Sampling, vocab: u32) -> bool { // whether a filter depends on the logits' order or on their masses
  let counted = s.top_k > 0u && s.top_k < vocab;
  return !is_greedy(s) && (counted || s.top_p < 1.0 || needs_entropy(s) || s.xtc_probability > 0.0);
}

fn hash(seed: u32, pos: u32, token: u32) -> u32 { // PCG's output permutation (O'Neill 2014), chained
  var h = seed;
  for (var i = 0u; i < 3u; i++) {
    h = (h ^ select(select(token, pos, i == 1u), 0x9e3779b9u, i == 0u)) * 747796405u + 2891336453u;
    h = ((h >> ((h >> 28u) + 4u)) ^ h) * 277803737u;
    h = (h >> 22u) ^ h;
  }
  return h;
}

fn uniform_of(bits: u32) -> f32 { // in (0, 1), both excluded; small values keep full precision
  return min((f32(bits) + 0.5) * 2.3283064e-10, 0.99999994);
}

// Gumbel noise: -log(-log(1 - u)). Its largest values decide the argmax. They come from the smallest u, where 1 - u would
// lose precision, so a series replaces log(1 - u) there.
fn gumbel(bits: u32) -> f32 {
  let u = uniform_of(bits);
  return -log(select(-log(1.0 - u), u * (1.0 + u * (0.5 + u / 3.0)), u < 0.01));
}

struct Row { // what to sample from a row of logits; sample_best.wgsl or sample_shape.wgsl writes it for the kernels after it
  wanted: u32, // 0: nothing
  seq: u32, // sequence slot
  at: u32, // position of the sampled token
  again: u32, // 1: in place of a token that the mask forbids
}

struct FilterBounds { // a token passes the filters if min_key <= key_of(logit) <= max_key
  min_key: u32,
  max_key: u32,
  top: f32, // largest logit
  temperature: f32, // to draw with
}

fn key_of(value: f32) -> u32 { // an integer in the order of the floats
  let bits = bitcast<u32>(value);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn value_of(key: u32) -> f32 { // the float of a key
  return bitcast<f32>(select(~key, key ^ 0x80000000u, (key >> 31u) == 1u));
}
