// Loads a tile of values into registers: part of attention.wgsl's main. Nothing is computed with them here, so that no
// thread waits for its loads.
#for i in (TS * VALUE_DIM // 4 + WG - 1) // WG
let value_at${i} = min(t + ${i}u * WG, TS * VALUE_VECS - 1u);
let value${i} = fetched(true, page, min(s0 + value_at${i} / VALUE_VECS, last), kv_head, value_at${i} % VALUE_VECS);
#endfor
