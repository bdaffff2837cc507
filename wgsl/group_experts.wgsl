// Sorts a batch's (token, chosen expert) pairs by expert, and divides each expert's into tiles, for the mat-mul kernels.
// One workgroup.
#param EXPERTS
#param USED // experts of a token
#param TM // slots of a tile
#param WG

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
@bind var<storage, read> chosen: array<u32>; // (n, USED)
@bind var<storage, read_write> slots: array<u32>; // (n * USED): token * USED + choice, sorted by expert
@bind var<storage, read_write> tiles: array<vec4u>; // (expert, index of its first slot, slots, 0); no slots: unused

var<workgroup> counts: array<atomic<u32>, EXPERTS>; // slots of each expert
var<workgroup> next: array<atomic<u32>, EXPERTS>; // where the expert's next slot goes
var<workgroup> used_tiles: u32;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) t: u32) {
  let pairs = state.n * USED;
  for (var e = t; e < EXPERTS; e += WG) {
    atomicStore(&counts[e], 0u);
  }
  workgroupBarrier();
  for (var i = t; i < pairs; i += WG) {
    atomicAdd(&counts[chosen[i]], 1u);
  }
  workgroupBarrier();
  for (var e = t; e < EXPERTS; e += WG) {
    var first = 0u;
    var tile = 0u;
    for (var before = 0u; before < e; before++) {
      let count = atomicLoad(&counts[before]);
      first += count;
      tile += (count + TM - 1u) / TM;
    }
    atomicStore(&next[e], first);
    let end = first + atomicLoad(&counts[e]);
    for (; first < end; first += TM) {
      tiles[tile] = vec4u(e, first, min(TM, end - first), 0u);
      tile++;
    }
    if (e == EXPERTS - 1u) {
      used_tiles = tile;
    }
  }
  workgroupBarrier();
  for (var tile = used_tiles + t; tile < arrayLength(&tiles); tile += WG) {
    tiles[tile] = vec4u(0u);
  }
  for (var i = t; i < pairs; i += WG) {
    slots[atomicAdd(&next[chosen[i]], 1u)] = i;
  }
}
