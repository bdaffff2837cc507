// Multiplies four dimensions, the vectors `d`, of a thread's queries and keys: part of attention.wgsl's main.
#for j in 4
let k${j} = kv[(${j}u * KEY_LANES + key_lane) * PITCH + d];
#endfor
#for i in SR
{
  let a = qs[(${i}u * ROW_LANES + row_lane) * PITCH + d];
#if F16
#for j in 4
  part${i}_${j} = fma(a, k${j}, part${i}_${j});
#endfor
#else
  score${i} += vec4f(dot(a, k0), dot(a, k1), dot(a, k2), dot(a, k3));
#endif
}
#endfor
