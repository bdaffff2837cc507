// Scales of a Q4_K or Q5_K block: d and dmin (f16), then eight scales and eight minima of six bits, in twelve bytes. Groups
// 0 to 3 have a byte for the scale and one for the minimum. Groups 4 to 7 have their lower four bits in the third word, and
// their upper two in the top bits of the bytes of groups 0 to 3.
@bind var<storage, read> w_d: array<vec4u>;

// (scale, minimum) of group `sub` of a block: an element is q * scale - minimum.
fn k_scales(block: u32, sub: u32) -> vec2f {
  let s = w_d[block];
  let bytes = s.yzw >> vec3u(8u * (sub & 3u));
  let first = bytes.xy & vec2u(63);
  let last = (vec2u(bytes.z, bytes.z >> 4u) & vec2u(15)) | ((bytes.xy >> vec2u(2)) & vec2u(0x30));
  return unpack2x16float(s.x) * vec2f(select(first, last, sub >= 4u));
}

// (scale, scale, minimum, minimum) of groups 2 i and 2 i + 1. `s`: the block's words of w_d. Unpacks two bytes at a time.
fn k_scales_of_pair(s: vec4u, i: u32) -> vec4f {
  let bytes = s.yzw >> vec3u(16u * (i & 1u));
  let first = bytes.xy & vec2u(0x3f3f);
  let last = (vec2u(bytes.z, bytes.z >> 4u) & vec2u(0x0f0f)) | ((bytes.xy >> vec2u(2)) & vec2u(0x3030));
  let v = select(first, last, i >= 2u);
  return unpack2x16float(s.x).xxyy * vec4f(vec4u(v.x, v.x >> 8u, v.y, v.y >> 8u) & vec4u(0xff));
}
