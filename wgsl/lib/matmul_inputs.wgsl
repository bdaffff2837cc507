// Bindings, loads of X and the epilogue that matmul.wgsl, matmul_int8.wgsl and matmul_matrix.wgsl share.
//
// GROUPED: a mixture of experts. A tile has tokens of one expert, from group_experts.wgsl. W stacks STACK matrices
// (EXPERTS x ROWS, COLS); an expert's result is its rows in each of them, end to end.
#param GROUPED
#if GROUPED
#param EXPERTS
#param ROWS // rows of one expert in one matrix
#param STACK // matrices in W
#param USED // experts of a token
#param X_PER_SLOT // 1: x has a row per slot; 0: per token
#endif
#param CACHED // 1: the rows of x are a cache's, of all positions of the sequence, in turn; y is f16
#if CACHED
#param ROW // columns of the cache
#param FIRST // column of the cache that x begins with
#endif
#param X16 // 1: x is f16
#param INT8 // 1: x is in bytes (quantize_rows.wgsl)
#if not INT8
#if X16
alias XVector = vec4<f16>;
#else
alias XVector = vec4f;
#endif
#endif
struct Params {
  rows: u32, // of W, or of this part of W
  row0: u32, // column of y for W's first row
  y_stride: u32,
#if GROUPED
  first: u32, // row of the whole W that this part begins with
#endif
#if EPILOGUE == "split"
  q_rows: u32,
  kv_rows: u32,
#endif
}
@bind var<uniform> p: Params;
#include "lib/state.wgsl"
#if CACHED
@bind var<storage, read> state: States;
#include "lib/pages.wgsl"
#else
@bind var<storage, read> state: State;
#endif
#if INT8
@bind var<storage, read> xq: array<vec4u>; // (n, COLS), 16 signed bytes
@bind var<storage, read> xq_scale: array<vec2f>; // (n, COLS / 32): scale, scale x sum of the group
#else
@bind var<storage, read> x: array<XVector>; // (n, COLS padded to 32)
#endif
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#if BIAS
@bind var<storage, read> bias: array<f32>; // (rows), or (STACK, EXPERTS, ROWS padded to 32)
#endif
#include "lib/matrix_scale.wgsl"
#if GROUPED
@bind var<storage, read> tiles: array<vec4u>; // (expert, index of its first slot, slots)
@bind var<storage, read> slots: array<u32>; // token * USED + choice, sorted by expert
#endif
#if CACHED
#param F16
alias Stored = f16;
#else
#if EPILOGUE in ("activate", "gated", "split")
alias Stored = vec4<f16>;
#else
alias Stored = f32;
#endif
#endif
@bind var<storage, read_write> y: array<Stored>; // (n, y_stride)
#if EPILOGUE == "split"
@bind var<storage, read_write> k_cache: array<Stored>; // (n, kv_rows)
@bind var<storage, read_write> v_cache: array<Stored>;
#endif

struct Tile {
  first: u32, // token, or index in slots, of the first row
  count: u32, // rows of x and y; 0: nothing to do
  expert: u32,
}

fn tile_at(i: u32) -> Tile {
#if GROUPED
  let tile = tiles[i];
  return Tile(tile.y, tile.z, tile.x);
#else
#if CACHED
  let n = state.tokens[0].pos + state.tokens[0].n;
#else
  let n = state.n;
#endif
  return Tile(i * TM, min(TM, max(n, i * TM) - i * TM), 0u);
#endif
}

// Row of y for row i of a tile.
fn y_row(tile: Tile, i: u32) -> u32 {
#if GROUPED
  return slots[tile.first + i];
#else
  return tile.first + i;
#endif
}

// Row of x for row i of a tile. Rows after the last repeat it.
fn x_row(tile: Tile, i: u32) -> u32 {
  let at = tile.first + min(i, tile.count - 1u);
#if GROUPED
  return slots[at] / select(USED, 1u, X_PER_SLOT == 1u);
#else
  return at;
#endif
}
#if not INT8

// Index of the first vector of x for row i of a tile.
fn x_at(tile: Tile, i: u32) -> u32 {
#if CACHED
  let at = x_row(tile, i);
  return (row_in(page_of(at, state.tokens[0].seq), at) * ROW + FIRST) / 4u;
#else
  return x_row(tile, i) * W_GROUPS * 8u;
#endif
}

// Four values of a row of x, `column` on; zeros after the last column, where the padding's contents are undefined.
fn within_row(v: XVector, column: u32) -> XVector {
  if (COLS % 4u != 0u) {
    return select(XVector(0), v, column + vec4u(0, 1, 2, 3) < vec4u(COLS));
  }
  return select(XVector(0), v, column < COLS);
}

// Four values of the row at x_at(), columns 32 * g + 4 * c on.
fn load_x(at: u32, g: u32, c: u32) -> XVector {
  let v = x[at + g * 8u + c];
  if (COLS % 32u != 0u) {
    return within_row(v, 32u * g + 4u * c);
  }
  return v;
}
#endif

// Rows of the result.
fn result_rows() -> u32 {
#if GROUPED
  return STACK * ROWS;
#else
  return p.rows;
#endif
}

#if EPILOGUE == "gated"

// Rows of the gate, and of what it gates.
fn gated_rows() -> u32 {
  return result_rows() / 2u;
}
#endif

// Row of this part of W for a row of the result; p.rows or more if it is in another part.
fn w_row(tile: Tile, row: u32) -> u32 {
#if GROUPED
  return (row / ROWS * EXPERTS + tile.expert) * ROWS + row % ROWS - p.first;
#else
  return row;
#endif
}

// Row of this part that is loaded for row i of a tile: the last one for rows after it, which are not stored.
fn loaded_row(tile: Tile, n0: u32, i: u32) -> u32 {
#if EPILOGUE == "gated"
  // Squares of gate and up rows take turns, so that both are in one subgroup. W stacks the gate's rows, then the up's.
  let half = gated_rows();
  let row = min(n0 / 2u + i / (2u * SIDE) * SIDE + i % SIDE, half - 1u) + i / SIDE % 2u * half;
  return w_row(tile, row);
#else
  return min(w_row(tile, min(n0 + i, result_rows() - 1u)), p.rows - 1u);
#endif
}

#if BIAS == 1 and GROUPED

fn expert_bias(tile: Tile, row: u32) -> f32 {
  return bias[(row / ROWS * EXPERTS + tile.expert) * ((ROWS + 31u) / 32u * 32u) + row % ROWS];
}
#endif

#if EPILOGUE in ("store", "add", "accumulate")
// Applies scale, bias and epilogue to one result.
fn store_result(tile: Tile, i: u32, row: u32, sum: f32) {
  if (i >= tile.count || row >= result_rows() || w_row(tile, row) >= p.rows) {
    return;
  }
  let at = y_row(tile, i) * p.y_stride + p.row0 + row;
  var v = sum;
#if SCALES
#if GROUPED
  v *= scales[row / ROWS * EXPERTS + tile.expert];
#else
  v *= matrix_scale(row);
#endif
#endif
#if BIAS == 1
#if GROUPED
  v += expert_bias(tile, row);
#else
  v += bias[p.row0 + row];
#endif
#endif
#if EPILOGUE in ("add", "accumulate")
  y[at] += v;
#else
  y[at] = Stored(v);
#endif
}
#endif
