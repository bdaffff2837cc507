// Reads a buffer once and adds its words up, the simplest way to keep a memory busy: what the device gives at best. A
// thread has LOADS vectors, a workgroup's lie next to each other.
#param WG
#param LOADS

struct Params {
  vecs: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<vec4u>;
@bind var<storage, read_write> y: array<u32>; // a sum for each thread

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) t: u32) {
  let group = wid.y * groups.x + wid.x;
  var sum = vec4u(0);
#for i in LOADS
  let at${i} = (group * LOADS + ${i}u) * WG + t;
  if (at${i} < p.vecs) {
    sum += x[at${i}];
  }
#endfor
  let to = group * WG + t;
  if (to < arrayLength(&y)) {
    y[to] = sum.x + sum.y + sum.z + sum.w;
  }
}
