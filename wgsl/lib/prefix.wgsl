// Prefix sums over a workgroup of WG threads (a power of two): a thread gets the sum over itself and the threads before it.
// With subgroups, lanes first shuffle within the device's smallest subgroup size.
var<workgroup> prefix_memory: array<vec2f, WG>;

fn workgroup_prefix(value: vec2f, t: u32) -> vec2f {
  var sum = value;
  var block = 1u; // threads that already hold the sum over those of their block before them
#if SG
  for (; block < min(SG, WG); block *= 2u) {
    let before = subgroupShuffleUp(sum, block);
    sum += select(vec2f(0), before, t % SG >= block);
  }
#endif
  prefix_memory[t] = sum;
  workgroupBarrier();
  for (; block < WG; block *= 2u) { // blocks in pairs: the second adds the sum of the first
    if ((t & block) != 0u) {
      sum += prefix_memory[(t & ~(2u * block - 1u)) + block - 1u];
    }
    workgroupBarrier();
    prefix_memory[t] = sum;
    workgroupBarrier();
  }
  return sum;
}

fn prefix_before(t: u32) -> vec2f { // the sum over the threads before t; valid until the next workgroup_prefix
  if (t == 0u) {
    return vec2f(0);
  }
  return prefix_memory[t - 1u];
}
