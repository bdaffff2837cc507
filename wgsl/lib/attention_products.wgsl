// Multiplies vector d of part c of a thread's queries and keys: part of attention.wgsl's main.
#for j in 4
#if F16 and not SUMS32
let k${j} = kv[0][key_row${j} / 4u][key_row${j} % 4u].parts[c][d];
#else
let k${j} = vec4f(kv[0][key_row${j} / 4u][key_row${j} % 4u].parts[c][d]);
#endif
#endfor
#for i in SR
{
#if F16 and not SUMS32
  let a = qs[${i}u * ROW_LANES + row_lane].parts[c][d];
#else
  let a = vec4f(qs[${i}u * ROW_LANES + row_lane].parts[c][d]);
#endif
#for j in 4
#if F16 and not SUMS32
  part${i}_${j} = fma(a, k${j}, part${i}_${j});
#else
  score${i}[${j}] = fma(a.x, k${j}.x, fma(a.y, k${j}.y, fma(a.z, k${j}.z, fma(a.w, k${j}.w, score${i}[${j}]))));
#endif
#endfor
}
#endfor
