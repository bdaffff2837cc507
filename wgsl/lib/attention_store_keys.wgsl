// Stores the next tile of keys in workgroup memory: part of attention.wgsl's main.
#if AHEAD
#for i in (TS * HEAD_DIM // 4 + WG - 1) // WG
if (t + ${i}u * WG < TS * VECS) {
  store_key(key_at${i}, converted(key${i}));
}
#endfor
#else
for (var e = t; e < TS * VECS; e += WG) {
  store_key(e, converted(fetched(false, next_page, min(s0 + TS + e / VECS, next_last), kv_head, e % VECS)));
}
#endif
