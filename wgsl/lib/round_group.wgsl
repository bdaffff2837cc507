// Rounds a group of 32 floats to signed bytes with one scale, as llama.cpp rounds activations (Q8_0).
#if SG >= 4
const LANES = 4u; // threads of a group
#else
const LANES = 1u;
#endif
const VECS_PER_THREAD = 8u / LANES; // vectors of a thread

struct Rounded {
  words: array<u32, VECS_PER_THREAD>, // four bytes each
  scale: vec2f, // scale, scale x sum of the group
}

// A thread's part of a group, which LANES threads side by side have. All threads of a subgroup call this together.
fn round_group(v: array<vec4f, VECS_PER_THREAD>) -> Rounded {
  var max_abs4 = vec4f(0);
  for (var j = 0u; j < VECS_PER_THREAD; j++) {
    max_abs4 = max(max_abs4, abs(v[j]));
  }
  var max_abs = max(max(max_abs4.x, max_abs4.y), max(max_abs4.z, max_abs4.w));
#if SG >= 4
  max_abs = max(max_abs, subgroupShuffleXor(max_abs, 1u));
  max_abs = max(max_abs, subgroupShuffleXor(max_abs, 2u));
#endif
  let scale = max_abs / 127.0;
  let inverse = select(0.0, 127.0 / max_abs, max_abs > 0.0);
  var words: array<u32, VECS_PER_THREAD>;
  var sum = 0;
  for (var j = 0u; j < VECS_PER_THREAD; j++) {
    words[j] = pack4xI8(vec4i(round(v[j] * inverse)));
    sum += dot4I8Packed(words[j], 0x01010101u);
  }
#if SG >= 4
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
#endif
  return Rounded(words, vec2f(scale, scale * f32(sum)));
}
