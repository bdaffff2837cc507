// Batches with media: a record per token, and ids that stand for embeddings (py_engine/plan/media.py).
#param MEDIA // 1: the batch has tokens of media; 0: it has none
#if MEDIA
#param RECORDS // index in state.tables of the first token's record

// Position after the last one that token m sees: of a picture that is seen as a whole, its end.
fn media_end(m: u32) -> u32 {
  return state.tables[RECORDS + 5u * m];
}

// Position by which token m is rotated: in time (axis 0), down (1), across (2), or by its picture's number (3).
fn media_place(m: u32, axis: u32) -> u32 {
  return state.tables[RECORDS + 5u * m + 1u + axis];
}
#endif
