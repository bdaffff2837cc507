// Sum over a workgroup of WG threads (a power of two): lib/reduce_slices.wgsl with one slice.
#include "lib/reduce_slices.wgsl" with SLICE=WG slice_sum=workgroup_sum
