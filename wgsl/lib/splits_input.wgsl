// The splits of attention as the input of a kernel that joins them itself. #params as in attention_combine.wgsl.
#param HEAD_DIM
#param TS
#param SPLIT
#param WINDOW
#param CHUNKED
#param SINKS
@bind var<storage, read> parts: array<vec4f>; // (n, heads, SPLIT, VECS + 1)
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (heads)
#endif
#include "lib/attention_split.wgsl"
#include "lib/merged_splits.wgsl"
