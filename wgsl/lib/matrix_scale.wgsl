// Factors of sums: each of the matrices that W stacks has one, or each expert's part of them (plan/matrix_scales.py).
#param SCALES // matrices with a factor; 0: none has one
#if SCALES
#param SCALE_FIRST // index of the first one's factor
@bind var<storage, read> scales: array<f32>;
#if SCALES > 1
#param SCALE_ROW_1 // row of W that the second matrix begins with
#endif
#if SCALES > 2
#param SCALE_ROW_2
#endif

fn matrix_scale(row: u32) -> f32 {
  var at = SCALE_FIRST;
#if SCALES > 1
  at += u32(row >= SCALE_ROW_1);
#endif
#if SCALES > 2
  at += u32(row >= SCALE_ROW_2);
#endif
  return scales[at];
}
#endif
