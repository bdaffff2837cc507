// best[m, i] = (bits of the largest logit of partition i of the vocabulary, its index); rows[m] = what to sample.
// Grid (partitions, rows). The smaller index wins a tie.
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row

struct Params {
  vocab: u32,
  stride: u32, // floats between rows of logits
  partitions: u32,
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> state: array<State>;
@bind var<storage, read> logits: array<f32>;
#include "lib/first_pass.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let wanted = STATE_PER_TOKEN == 0u || m < state[0].n;
  let n = select(state[0].n, 1u, STATE_PER_TOKEN == 1u);
  write_row(m, Row(u32(wanted), state[m].seq, state[m].pos + n, 0u), wid.x, t);
  if (!wanted) {
    return;
  }
  let end = min((wid.x + 1u) * PARTITION, p.vocab);
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var i = wid.x * PARTITION + t; i < end; i += WG) {
    let logit = logits[m * p.stride + i];
    if (logit > value) {
      value = logit;
      index = i;
    }
  }
  write_best(m, value, index, wid.x, t);
}
