// Parameters and bindings that matvec.wgsl and matvec_small_batch.wgsl share.
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param TK // threads that share a row
#param TR // groups of TK threads in a workgroup
#param R // rows of a thread
#param NORM // 1: x is RMS-normalised first
#param BIAS // 1: y has a bias
#param EPILOGUE // "store", "add", "gated" or "qkv": see matvec.wgsl
#param SG
#if EPILOGUE == "gated"
#param ACTIVATION // see activation.wgsl
#endif
#if EPILOGUE == "qkv"
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#endif

struct Params {
  rows: u32,
  row0: u32, // index in y of W's first row
  y_stride: u32, // floats between tokens of y
#if NORM
  eps: f32,
#endif
#if EPILOGUE == "qkv"
  q_rows: u32,
  kv_rows: u32, // rows of K; V has as many
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
#endif
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#if NORM
@bind var<storage, read> norm: array<vec4f>;
#endif
#if BIAS
@bind var<storage, read> bias: array<f32>;
#endif
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#if EPILOGUE == "qkv"
#include "lib/rope.wgsl"
#endif
#if EPILOGUE == "gated"
#include "lib/activation.wgsl"
#endif

const WG = TK * TR;
const RT = TR * R; // rows of a workgroup

// Row of W in slot `slot` of the workgroup. Rows that an epilogue combines are in one workgroup.
fn row_of(base: u32, slot: u32) -> u32 {
#if EPILOGUE == "gated"
  return base / 2u + slot / 2u + (slot & 1u) * (p.rows / 2u);
#else
#if EPILOGUE == "qkv"
  return rope_row(base + slot);
#else
  return base + slot;
#endif
#endif
}
