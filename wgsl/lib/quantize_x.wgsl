// x as signed bytes in workgroup memory: groups of 32 share a scale, as llama.cpp has its activations (Q8_0), so that a
// matrix of integers meets integers (dot4I8Packed). Returns this thread's part of the sum of squares of x.
var<workgroup> xq: array<vec4u, 2u * W_GROUPS>;
var<workgroup> xq_scale: array<vec2f, W_GROUPS>; // scale, scale x sum of the group

#if SG >= 4
const LANES = 4u; // threads of a group
#else
const LANES = 1u;
#endif
const PORTION = 8u / LANES; // vectors of a thread

// Where half of a group lies: what neighbouring threads read at once lies end to end, in whole lines of memory banks.
fn xq_at(g: u32, half: u32) -> u32 {
  return (g % GROUPS_PER_THREAD * 2u + half) * UNITS + g / GROUPS_PER_THREAD;
}

fn bytes_at(g: u32) -> Bytes {
  return Bytes(xq[xq_at(g, 0u)], xq[xq_at(g, 1u)], xq_scale[g]);
}

fn quantize_x(x0: u32, t: u32) -> f32 {
  var squares = 0.0;
  for (var round_ = 0u; round_ < (W_GROUPS * LANES + WG - 1u) / WG; round_++) { // all threads: they exchange
    let i = round_ * WG + t;
    let g = min(i / LANES, W_GROUPS - 1u);
    let mine = i < W_GROUPS * LANES;
    let first = g * 8u + i % LANES * PORTION;
    var v: array<vec4f, PORTION>;
    var top = vec4f(0);
    for (var j = 0u; j < PORTION; j++) {
      v[j] = x[x0 + first + j];
#if NORM
      squares += select(0.0, dot(v[j], v[j]), mine);
      v[j] *= norm[first + j];
#endif
      top = max(top, abs(v[j]));
    }
    var most = max(max(top.x, top.y), max(top.z, top.w));
#if SG >= 4
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
#endif
    let scale = most / 127.0;
    let inverse = select(0.0, 127.0 / most, most > 0.0);
    var words: array<u32, PORTION>;
    var sum = 0;
    for (var j = 0u; j < PORTION; j++) {
      words[j] = pack4xI8(vec4i(round(v[j] * inverse)));
      sum += dot4I8Packed(words[j], 0x01010101u);
    }
#if SG >= 4
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    let next = vec2u(subgroupShuffleXor(words[0], 1u), subgroupShuffleXor(words[1], 1u));
    if (mine && i % 2u == 0u) { // whole vectors: writing one component may touch its neighbours
      xq[xq_at(g, i % LANES / 2u)] = vec4u(words[0], words[1], next.x, next.y);
    }
#else
    if (mine) {
      xq[xq_at(g, 0u)] = vec4u(words[0], words[1], words[2], words[3]);
      xq[xq_at(g, 1u)] = vec4u(words[4], words[5], words[6], words[7]);
    }
#endif
    if (mine && i % LANES == 0u) {
      xq_scale[g] = vec2f(scale, scale * f32(sum));
    }
  }
  return squares;
}
