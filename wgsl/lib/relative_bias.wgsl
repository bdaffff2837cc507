// T5's bias of scores by the bucket of the distance (Raffel et al. 2020).
#param RELATIVE // "f32", "f16" or "bf16": the type of the table
#param MOST_DISTANCE // that the buckets tell apart
@bind var<storage, read> relative: array<u32>; // (buckets, n_head padded to 32), f32 or pairs of the others
@bind var<storage, read> buckets: array<u32>; // (2 * MOST_DISTANCE + 1): of keys from so far before the query to so far after

// The bias of a head for a key so many positions after the query. `heads`: query heads of the model.
fn relative_bias(distance: i32, head: u32, heads: u32) -> f32 {
  let most = i32(MOST_DISTANCE);
  let at = buckets[u32(clamp(distance, -most, most) + most)] * ((heads + 31u) / 32u * 32u) + head;
#if RELATIVE == "f32"
  return bitcast<f32>(relative[at]);
#endif
#if RELATIVE == "f16"
  return unpack2x16float(relative[at / 2u])[at % 2u];
#endif
#if RELATIVE == "bf16"
  return bitcast<f32>((relative[at / 2u] >> (16u * (at % 2u))) << 16u);
#endif
}
