// How a group of 32 keys or values becomes bytes: the largest of their sizes is the step of 127. `most`: that of each
// fourth of them.
fn step_of(most: vec4f) -> f32 {
  return max(max(most.x, most.y), max(most.z, most.w));
}

fn bytes_of(values: vec4f, step: f32) -> u32 {
  return pack4x8snorm(values * select(0.0, 1.0 / step, step > 0.0));
}
