// Multiplies vector d of part c of a thread's queries and keys: part of attention.wgsl's main.
#for j in 4
let k${j} = kv[0][key_row${j} / 4u][key_row${j} % 4u].parts[c][d];
#endfor
#for i in SR
{
  let a = qs[${i}u * ROW_LANES + row_lane].parts[c][d];
#for j in 4
#if F16
  part${i}_${j} = fma(a, k${j}, part${i}_${j});
#else
  score${i}[${j}] = fma(a.x, k${j}.x, fma(a.y, k${j}.y, fma(a.z, k${j}.z, fma(a.w, k${j}.w, score${i}[${j}]))));
#endif
#endfor
}
#endfor
