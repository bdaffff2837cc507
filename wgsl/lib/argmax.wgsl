// Argmax over a workgroup of WG threads (a power of two). The smaller index wins a tie. With subgroups, lanes first shuffle
// within the device's smallest subgroup size.
#param SG
const EMPTY = -3e38; // the value of no element
struct Best {
  value: f32,
  index: u32,
}
var<workgroup> argmax_memory: array<Best, WG>;

fn better(a: Best, b: Best) -> Best {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) {
    return b;
  }
  return a;
}

fn workgroup_argmax(value: f32, index: u32, t: u32) -> Best {
  var best_of_block = Best(value, index);
  var block = 1u; // threads that already hold their best
#if SG
  for (; block < min(SG, WG); block *= 2u) {
    let other = Best(subgroupShuffleXor(best_of_block.value, block), subgroupShuffleXor(best_of_block.index, block));
    best_of_block = better(best_of_block, other);
  }
#endif
  argmax_memory[t] = best_of_block;
  for (var width = WG / 2u; width >= block; width /= 2u) {
    workgroupBarrier();
    if (t < width) {
      argmax_memory[t] = better(argmax_memory[t], argmax_memory[t + width]);
    }
  }
  return workgroupUniformLoad(&argmax_memory[0]); // implies a barrier before and after
}
