// Which rows of a product adapters change: py_engine/plan/low_rank_entries.py.
struct Entry {
  y: u32, // first row of the product
  rows: u32,
  b: u32, // row of B for it
  h: u32, // first column of h
  adapter: u32,
  factor: f32, // alpha / rank
}
@bind var<storage, read> entries: array<Entry>;
