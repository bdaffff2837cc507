// Part of ssm_scan.wgsl's main: load this thread's share of the inputs of the CHUNK tokens from m0 on into registers.
#for i in (CHUNK * VECTORS * LANES + WG - 1) // WG
      {
        let e = t + ${i}u * WG;
        let m = min(m0 + e / PITCH, end - 1u);
        key${i} = key(m, group, 4u * (e % PITCH));
        query${i} = query(m, group, 4u * (e % PITCH));
#if PER_KEY
        key_decay${i} = key_decay(m, head, 4u * (e % PITCH));
#endif
      }
#endfor
#for i in (CHUNK * R + LANES - 1) // LANES
      {
        let e = t + ${i}u * WG;
        let m = min(m0 + e / BLOCK, end - 1u);
        value${i} = x[m * p.x_stride + p.values + head * ROWS + min(top + e % BLOCK, ROWS - 1u)];
      }
#endfor
