// The largest logit of a row, from the partitions' `best`.
#include "lib/argmax.wgsl"

fn top_of(m: u32, t: u32) -> Best {
  var top = Best(EMPTY, 0xffffffffu);
  for (var i = t; i < p.partitions; i += WG) {
    let record = best[m * p.partitions + i];
    let value = bitcast<f32>(record.x);
    if (value > top.value || (value == top.value && record.y < top.index)) {
      top = Best(value, record.y);
    }
  }
  return workgroup_argmax(top.value, top.index, t);
}
