// Joins up to MERGED partial results of attention_decode.wgsl. attention_combine.wgsl does it like this in short contexts,
// too, so that a token gets the same bits from it and from the product that joins them itself.
#param MERGED // splits that are joined at most
const VECS = HEAD_DIM / 4u;

// Four dimensions of a head's attention. `base`: index of its first split; `used`: its splits, at least one.
fn merged(base: u32, column: u32, used: u32, head: u32) -> vec4f {
#for i in MERGED
  let at${i} = (base + min(${i}u, used - 1u)) * (VECS + 1u);
  let stats${i} = parts[at${i} + VECS].xy; // maximum, denominator
  let sum${i} = parts[at${i} + column];
#endfor
  var top = stats0.x;
#for i in 1, MERGED
  top = max(top, stats${i}.x);
#endfor
#if SINKS
  top = max(top, sinks[head]);
#endif
  var sum = vec4f(0);
  var total = 0.0;
#for i in MERGED
  let w${i} = select(0.0, exp(stats${i}.x - top), ${i}u < used);
  sum = fma(vec4f(w${i}), sum${i}, sum);
  total = fma(w${i}, stats${i}.y, total);
#endfor
#if SINKS
  total += exp(sinks[head] - top);
#endif
  return sum / total;
}
