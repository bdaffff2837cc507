// How a group of 32 keys or values becomes bytes: the largest of their sizes is the step of 127.
fn largest(group: array<vec4f, 8>) -> f32 {
  var most = vec4f(0);
  for (var i = 0u; i < 8u; i++) {
    most = max(most, abs(group[i]));
  }
  return max(max(most.x, most.y), max(most.z, most.w));
}

fn bytes_of(values: vec4f, most: f32) -> u32 {
  return pack4x8snorm(values * select(0.0, 1.0 / most, most > 0.0));
}
