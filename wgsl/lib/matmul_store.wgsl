// Stores columns 32 * g0 on of a tile's rows of X and W from registers: part of matmul_matrix.wgsl's main.
#for i in TM * DEPTH // 4 // (SM * SN * LANES)
{
  let e = t + ${i}u * WG;
  let at = e / VECS * PITCH + e % VECS * 4u;
#if COLS % DEPTH
  let v = vec4<f16>(within_row(x${i}, 32u * g0 + e % VECS * 4u));
#else
  let v = vec4<f16>(x${i});
#endif
  xs[at] = v.x;
  xs[at + 1u] = v.y;
  xs[at + 2u] = v.z;
  xs[at + 3u] = v.w;
}
#endfor
#if QUANT == "f16" and HALVES
#for i in TN * DEPTH // 8 // (SM * SN * LANES)
{
  let e = t + ${i}u * WG;
  let at = e / EIGHTS * PITCH + e % EIGHTS * 8u;
  let low = bitcast<vec4<f16>>(w${i}.xy);
  let high = bitcast<vec4<f16>>(w${i}.zw);
  ws[at] = low.x;
  ws[at + 1u] = low.y;
  ws[at + 2u] = low.z;
  ws[at + 3u] = low.w;
  ws[at + 4u] = high.x;
  ws[at + 5u] = high.y;
  ws[at + 6u] = high.z;
  ws[at + 7u] = high.w;
}
#endfor
#else
#for i in (TN * DEPTH // 32 + SM * SN * LANES - 1) // (SM * SN * LANES)
if (t + ${i}u * WG < TN * GROUPS) {
  let e = min(t + ${i}u * WG, TN * GROUPS - 1u);
  let at = e / GROUPS * PITCH + e % GROUPS * 32u;
#if HALVES and not (AHEAD and QUANT == "q4_k")
  let halves = held_halves(w${i});
#else
  let halves = w${i};
#endif
#for c in 8
  ws[at + 4u * ${c}u] = halves[${c}].x;
  ws[at + 4u * ${c}u + 1u] = halves[${c}].y;
  ws[at + 4u * ${c}u + 2u] = halves[${c}].z;
  ws[at + 4u * ${c}u + 3u] = halves[${c}].w;
#endfor
}
#endfor
#endif
