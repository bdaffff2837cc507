// Multiplies the stored columns of X and W and adds them to the sums: part of matmul_matrix.wgsl's main.
#for k in DEPTH // SIDE
{
#for j in TN // SN // SIDE
  let b${j} = subgroupMatrixLoad<Right>(&ws, (sn + ${j}u * SIDE) * PITCH + ${k}u * SIDE, true, PITCH);
#endfor
#for i in TM // SM // SIDE
#if GROUPED
  if (sm + ${i}u * SIDE < tile.count) // skip what no token needs
#endif
  {
    let a = subgroupMatrixLoad<Left>(&xs, (sm + ${i}u * SIDE) * PITCH + ${k}u * SIDE, false, PITCH);
#for j in TN // SN // SIDE
    acc${i}_${j} = subgroupMatrixMultiplyAccumulate(a, b${j}, acc${i}_${j});
#endfor
  }
#endfor
}
#endfor
