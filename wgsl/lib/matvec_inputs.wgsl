// Parameters and bindings that matvec.wgsl and matvec_small_batch.wgsl share.
#param SECOND // 1: the rows of a second matrix, of another type, follow those of W. Names that end with _2 are of it
#param COLS // columns of W
#param NORM // 1: x is RMS-normalised first
#param BIAS // 1: y has a bias
#param X_STRIDE // vec4 between rows of x, if they are not COLS padded to 32
#param EPILOGUE // "store", "add", "activate", "gated", "gate" or "qkv": see matvec.wgsl
#param SG
#if EPILOGUE in ("activate", "gated", "gate")
#param ACTIVATION // see activation.wgsl
#endif
#param LOW_RANK
#param LOW_RANK_OWN_ROWS
#param FACTOR // of W x and its bias with "add", if it is not 0
#if EPILOGUE == "qkv"
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#endif

struct Params {
  rows: u32,
#if SECOND
  rows_2: u32,
#endif
  row0: u32, // index in y of W's first row
  y_stride: u32, // floats between tokens of y
#if LOW_RANK or LOW_RANK_OWN_ROWS
  h_stride: u32, // see lib/low_rank.wgsl
#endif
#if NORM
  eps: f32,
#endif
#if EPILOGUE == "gate"
  up_stride: u32, // floats between tokens of `up`
  up_first: u32, // column of `up` for W's first row
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
#if X_STRIDE
const X_VECS = X_STRIDE;
#else
const X_VECS = W_GROUPS * 8u; // between rows of x
#endif
#if NORM
@bind var<storage, read> norm: array<vec4f>;
#endif
#if BIAS
@bind var<storage, read> bias: array<f32>;
#endif
#include "lib/matrix_scale.wgsl"
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#if EPILOGUE == "qkv"
#include "lib/rope.wgsl"
#endif
#if EPILOGUE in ("activate", "gated", "gate")
#include "lib/activation.wgsl"
#endif
#if EPILOGUE == "gate"
@bind var<storage, read> up: array<f32>; // (n, up_stride)
#endif

// What is stored of a row's result, or added to y.
fn finished(v: f32) -> f32 {
#if EPILOGUE == "activate"
  return activation(v);
#else
#if FACTOR
  return FACTOR * v;
#else
  return v;
#endif
#endif
}

const WG = TK * TR;
