// Rounds a group of 32 keys or values to q8_0: signed bytes and one f32 scale. The scale is the group's largest absolute
// value, so byte 127 stands for 1 x scale.

// `max_abs4`: largest absolute value of the group's elements i, by i % 4.
fn scale_of(max_abs4: vec4f) -> f32 {
  return max(max(max_abs4.x, max_abs4.y), max(max_abs4.z, max_abs4.w));
}

fn bytes_of(values: vec4f, scale: f32) -> u32 {
  return pack4x8snorm(values * select(0.0, 1.0 / scale, scale > 0.0));
}
