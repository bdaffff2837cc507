// Where compressed keys are in their cache. A page has a place for every STEP of its positions; a key is at the place of the last
// position that it compresses. Last positions are at least STEP apart, so no two keys share a place.
#param PAGE // positions of a page
#param PAGES // entries of a block table: pages of a context
#param KEY_TABLE // index in state.tables of the first sequence's table
#param STEP // positions that share a place
#param SIZE // values of a key
#param KEY_WIDTH // values of the cache for each position, at least SIZE / STEP

// Index of the first value of the key whose last position is s.
fn key_at(s: u32, seq: u32) -> u32 {
  return state.tables[KEY_TABLE + seq * PAGES + s / PAGE] * (PAGE * KEY_WIDTH) + s % PAGE / STEP * SIZE;
}
