// Loads the next tile of keys into registers: part of attention.wgsl's main, as attention_load_values.wgsl.
#for i in (TS * HEAD_DIM // 4 + WG - 1) // WG
let key_at${i} = min(t + ${i}u * WG, TS * VECS - 1u);
let key${i} = fetched(false, next_page, min(s0 + TS + key_at${i} / VECS, next_last), kv_head, key_at${i} % VECS);
#endfor
