// The sampled token of each row: the argmax over its partitions. Appends it to the sequence and advances the state; or, for
// drafts, leaves that to advance.wgsl. Grid (1, rows).
#param GREEDY // 1: after sample_best.wgsl or sample_shape.wgsl; 0: after sample_draw.wgsl
#param CHOSEN // 1: write `chosen` alone, for advance.wgsl
#if not CHOSEN
#param STATE_PER_TOKEN // 1: a small batch with a State per row (sequence.wgsl); 0: one row
#param TOKENS // capacity of a sequence in `tokens`
#endif
#param WG

struct Params {
  vocab: u32,
  partitions: u32, // partitions of the vocabulary
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#include "lib/sampling.wgsl"
@bind var<storage, read> rows: array<Row, MAX_SMALL_BATCH>;
@bind var<storage, read> best: array<vec2u>; // (rows, partitions): bits of the largest logit, its index
#if not GREEDY
@bind var<storage, read> sampling: array<Sampling, MAX_SEQUENCES>;
@bind var<storage, read> drawn: array<vec2u>; // (rows, partitions)
#endif
#if CHOSEN
@bind var<storage, read_write> chosen: array<u32>; // (rows)
#else
@bind var<storage, read_write> tokens: array<u32>;
@bind var<storage, read_write> state: array<State>;
#endif
#include "lib/argmax.wgsl"

fn result_of(i: u32, greedy: bool) -> vec2u {
#if not GREEDY
  if (!greedy) {
    return drawn[i];
  }
#endif
  return best[i];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let row = rows[m];
  if (row.wanted == 0u) {
    return;
  }
  var greedy = true;
#if not GREEDY
  greedy = is_greedy(sampling[row.seq]);
#endif
  var value = EMPTY;
  var index = 0xffffffffu;
  for (var i = t; i < p.partitions; i += WG) {
    let result = result_of(m * p.partitions + i, greedy);
    let v = bitcast<f32>(result.x);
    if (v > value || (v == value && result.y < index)) {
      value = v;
      index = result.y;
    }
  }
  index = workgroup_argmax(value, index, t).index;
  if (t == 0u) {
    index = min(index, p.vocab - 1u); // with NaN logits there is no argmax
#if CHOSEN
    chosen[m] = index;
#else
    tokens[row.seq * TOKENS + row.at] = index;
    state[m].pos = row.at;
    state[m].resampled += row.again;
#if not STATE_PER_TOKEN
    state[m].n = 1u;
#endif
#endif
  }
}
