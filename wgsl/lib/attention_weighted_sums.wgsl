// Adds a tile's values, times their weights, to the sums of the thread's rows: part of attention.wgsl's main.
if (sums_rows) {
#for i in VR
  {
    let factor = row_factor[${i}u * SUM_ROW_LANES + sum_lane];
#for c in VC
    sum${i}_${c} *= factor;
#endfor
  }
#endfor
  for (var quad = team * (QUADS / TEAMS); quad < (team + 1u) * (QUADS / TEAMS); quad += SUMMED) {
#if HALF_SUMS
#for i in VR
#for c in VC
    var part${i}_${c} = h4(0);
#endfor
#endfor
#endif
#for u in 2 if TS > 4 and HALF_SUMS else 1
    {
#for i in VR
      let row${i} = ${i}u * SUM_ROW_LANES + sum_lane;
      let weight${i} = weights[row${i}][weights_at(row${i}, quad + ${u}u)];
#endfor
#for j in 4
#for c in VC
      {
        let v = kv[BUFFERS - 1u][quad + ${u}u][${j}].parts[column${c} / CHAIN][column${c} % CHAIN];
#for i in VR
#if HALF_SUMS
        part${i}_${c} = fma(h4(weight${i}[${j}]), v, part${i}_${c});
#else
        sum${i}_${c} = fma(vec4f(f32(weight${i}[${j}])), vec4f(v), sum${i}_${c});
#endif
#endfor
      }
#endfor
#endfor
    }
#endfor
#if HALF_SUMS
#for i in VR
#for c in VC
    sum${i}_${c} += vec4f(part${i}_${c});
#endfor
#endfor
#endif
  }
}
