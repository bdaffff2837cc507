// Argmax over a workgroup of WG threads. The smaller index wins a tie.
const EMPTY = -3e38; // the value of no element
struct Best {
  value: f32,
  index: u32,
}
var<workgroup> argmax_memory: array<Best, WG>;

fn workgroup_argmax(value: f32, index: u32, t: u32) -> Best {
  argmax_memory[t] = Best(value, index);
  for (var width = WG / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (t < width) {
      let a = argmax_memory[t];
      let b = argmax_memory[t + width];
      if (b.value > a.value || (b.value == a.value && b.index < a.index)) {
        argmax_memory[t] = b;
      }
    }
  }
  return workgroupUniformLoad(&argmax_memory[0]); // implies a barrier before and after
}
