// Which row of a cache holds a position: caches are divided into pages, and a sequence's block table lists its pages.
#param PAGE // positions of a page; 0: an encoder's cache, where position s is in row s
#if PAGE
#param PAGES // entries of a block table: pages of a context
#param TABLE // index in state.tables of the first sequence's table
#endif

// Page that holds position s of a sequence.
fn page_of(s: u32, seq: u32) -> u32 {
#if PAGE
  return state.tables[TABLE + seq * PAGES + s / PAGE];
#else
  return 0u;
#endif
}

// Row that holds position s, which is in `page`.
fn row_in(page: u32, s: u32) -> u32 {
#if PAGE
  return page * PAGE + s % PAGE;
#else
  return s;
#endif
}
