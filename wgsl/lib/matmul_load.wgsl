// Loads columns 32 * g0 on of a tile's rows of X and W into registers: part of matmul_matrix.wgsl's main. Nothing is computed
// with them here, so that no thread waits for its loads. Q4_K is an exception: it was faster unpacked here.
#for i in TM * DEPTH // 4 // (SM * SN * LANES)
x${i} = x[x_at${i} + g0 * 8u + (t + ${i}u * WG) % VECS];
#endfor
#if QUANT == "f16" and HALVES
#for i in TN * DEPTH // 8 // (SM * SN * LANES)
w${i} = w_qs[w_at${i} + 4u * group_at(g0 + (t + ${i}u * WG) % EIGHTS / 4u)];
#endfor
#else
#for i in (TN * DEPTH // 32 + SM * SN * LANES - 1) // (SM * SN * LANES)
#if HALVES
#if AHEAD and QUANT == "q4_k"
w${i} = w_halves(w_row${i}, group_at(g0 + (t + ${i}u * WG) % GROUPS));
#else
w${i} = w_held(w_row${i}, group_at(g0 + (t + ${i}u * WG) % GROUPS));
#endif
#else
{
  let w = w_group(w_row${i}, group_at(g0 + (t + ${i}u * WG) % GROUPS));
#for c in 8
  w${i}[${c}] = vec4<f16>(w[${c}]);
#endfor
}
#endif
#endfor
#endif
