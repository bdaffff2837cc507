// A matrix W of matvec.wgsl and matvec_small_batch.wgsl, and how a workgroup's threads divide its rows.
#param QUANT // fragment of wgsl/quants that reads W
#param TK // threads that share a row
#param TR // groups of TK threads in a workgroup
#param R // rows of a thread
#include "quants/${QUANT}.wgsl"

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
