// y[t] = sum of thread t's words of x: measures the device's read bandwidth, with nothing but loads. Grid: workgroups in x
// and y; a workgroup reads consecutive vectors.
#param WG
#param LOADS // vec4 of a thread

struct Params {
  vecs: u32, // vec4 of x
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<vec4u>;
@bind var<storage, read_write> y: array<u32>; // a sum per thread

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
