// Prefix sums over a workgroup of WG threads: thread t gets the sum of the values of the threads 0 ... t.
var<workgroup> prefix_memory: array<vec2f, WG>;

fn workgroup_prefix(value: vec2f, t: u32) -> vec2f {
  var sum = value;
  for (var width = 1u; width < WG; width *= 2u) {
    prefix_memory[t] = sum;
    workgroupBarrier();
    if (t >= width) {
      sum += prefix_memory[t - width];
    }
    workgroupBarrier();
  }
  prefix_memory[t] = sum;
  workgroupBarrier();
  return sum;
}

fn prefix_before(t: u32) -> vec2f { // the sum of the values of the threads before t; valid until the next workgroup_prefix
  if (t == 0u) {
    return vec2f(0);
  }
  return prefix_memory[t - 1u];
}
