// How far each pair of a token's rows is rotated.
#param MROPE // 1: M-RoPE (Wang et al. 2024), which rotates tokens of pictures by three positions, each some of the pairs
#if MROPE
#param SHIFTS // index in state.tables of the first sequence's shift: rotary position - position, of tokens after media
#endif
#param TURNS // 1: rope_freqs has the turns of each token of the batch, (n, ROPE_DIM / 2); 0: turns per position
// (ROPE_DIM / 2) turns in units of 2^-32 turns: wraps exactly. MROPE: then each pair's axis (media.wgsl).
@bind var<storage, read> rope_freqs: array<u32>;
#include "lib/rotation.wgsl"

// Position by which a pair of token m is rotated.
fn rotary_position(m: u32, pair: u32) -> u32 {
#if MROPE
#if MEDIA
  return media_place(m, rope_freqs[ROPE_DIM / 2u + pair]);
#else
  return offset_of(m) + state.tables[SHIFTS + seq_of(m)];
#endif
#else
  return offset_of(m);
#endif
}

// Rotation of a pair of token m: (cos, sin).
fn pair_rotation(pair: u32, m: u32) -> vec2f {
#if TURNS
  return p.rope_scale * cos_sin(rope_freqs[m * (ROPE_DIM / 2u) + pair]);
#else
  return p.rope_scale * cos_sin(rotary_position(m, pair) * rope_freqs[pair]);
#endif
}
