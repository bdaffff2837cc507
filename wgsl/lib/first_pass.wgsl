// What the first kernel of a sampler leaves for the others: the row, and each partition's largest logit.
#param PARTITION // logits of a partition; one workgroup reads them
#param WG
@bind var<storage, read_write> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read_write> best: array<vec2u>; // (rows, partitions): bits of the largest logit, its index
#include "lib/argmax.wgsl"

fn write_row(m: u32, row: Row, part: u32, t: u32) {
  if (part == 0u && t == 0u) {
    rows[m] = row;
  }
}

fn write_best(m: u32, value: f32, index: u32, part: u32, t: u32) {
  let top = workgroup_argmax(value, index, t);
  if (t == 0u) {
    best[m * p.partitions + part] = vec2u(bitcast<u32>(top.value), top.index);
  }
}
