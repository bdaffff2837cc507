// Loads columns 32 * g0 on of a tile's rows of X and W into registers: part of matmul_matrix.wgsl's main.
#for i in TM * DEPTH // 4 // (SM * SN * LANES)
x${i} = vec4<f16>(load_x(x_at${i}, g0 + (t + ${i}u * WG) % VECS / 8u, t % 8u));
#endfor
#for i in (TN * DEPTH // 32 + SM * SN * LANES - 1) // (SM * SN * LANES)
#if HALVES
w${i} = w_halves(w_row${i}, min(g0 + (t + ${i}u * WG) % GROUPS, W_GROUPS - 1u));
#else
{
  let w = w_group(w_row${i}, min(g0 + (t + ${i}u * WG) % GROUPS, W_GROUPS - 1u));
#for c in 8
  w${i}[${c}] = vec4<f16>(w[${c}]);
#endfor
}
#endif
#endfor
