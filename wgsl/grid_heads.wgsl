// Queries, keys and values of heads with positions in a grid (Li et al. 2022): a score is q.k + q.r[column's distance] +
// q.s[line's distance]. A head gets 2 SIDE more dimensions: the query's are its products with the rows of both tables for
// each column and line, the key's are 1 for its own column and line, so that attention needs nothing of its own.
// Grid (HEADS (HEAD_DIM + 2 SIDE) / THREADS, tokens).
#param HEADS
#param HEAD_DIM
#param SIDE // columns and lines of a grid, at most
#param Y16 // 1: the results are f16
#param THREADS

struct Params {
  x_stride: u32,
  table_stride: u32,
  y_stride: u32,
  scale: f32, // of the products with tables: what attention divides scores by
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, x_stride): q, k and v of all heads
@bind var<storage, read> columns: array<f32>; // (2 SIDE - 1, table_stride): a key of each distance
@bind var<storage, read> lines: array<f32>; // the same
@bind var<storage, read> cells: array<vec2u>; // of each token: column and line (16 bits each), and its grid's side
#include "lib/result.wgsl"
@bind var<storage, read_write> k: array<Value>; // (n, HEADS WIDE)
@bind var<storage, read_write> v: array<Value>; // the same

const WIDE = HEAD_DIM + 2u * SIDE;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= HEADS * WIDE) {
    return;
  }
  let q0 = m * p.x_stride + id.x / WIDE * HEAD_DIM;
  let i = id.x % WIDE;
  var query = 0.0;
  var key = 0.0;
  var value = 0.0;
  if (i < HEAD_DIM) {
    query = x[q0 + i];
    key = x[q0 + HEADS * HEAD_DIM + i];
    value = x[q0 + 2u * HEADS * HEAD_DIM + i];
  } else {
    let of_lines = i - HEAD_DIM >= SIDE;
    let j = (i - HEAD_DIM) % SIDE;
    let cell = cells[m];
    let at = select(cell.x & 0xffffu, cell.x >> 16u, of_lines);
    if (j < cell.y) {
      let row = (at + cell.y - 1u - j) * p.table_stride;
      for (var d = 0u; d < HEAD_DIM; d++) {
        query = fma(x[q0 + d], select(columns[row + d], lines[row + d], of_lines), query);
      }
      query *= p.scale;
      key = f32(j == at);
    }
  }
  y[m * p.y_stride + id.x] = Value(query);
  k[m * HEADS * WIDE + id.x] = Value(key);
  v[m * HEADS * WIDE + id.x] = Value(value);
}
