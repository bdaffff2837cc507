// The two sums of a record that tell of damage (shards.js: checksum() has the same and says what they are), over the
// raw bytes as they lie before repack. A word's share does not depend on the others, so each thread takes its own.
struct Params {
  bytes: u32, // of the record; what lies behind them is of an earlier one
  at: u32, // where its sums lie
  stride: u32, // threads
}
@bind var<uniform> p: Params;
@bind var<storage, read> raw: array<u32>;
@bind var<storage, read_write> sums: array<atomic<u32>>; // start as zeros

var<workgroup> shared_sums: array<atomic<u32>, 2>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) thread: u32) {
  var first = select(0u, p.bytes, id.x == 0u);
  var second = 0u;
  for (var i = id.x; 4u * i < p.bytes; i += p.stride) {
    var word = raw[i];
    let left = p.bytes - 4u * i;
    if (left < 4u) {
      word &= (1u << (8u * left)) - 1u;
    }
    word ^= i * 0x9e3779b1u;
    word = (word ^ (word >> 16u)) * 0x7feb352du;
    word ^= word >> 15u;
    first += word;
    word *= 0x846ca68bu;
    second += word ^ (word >> 16u);
  }
  atomicAdd(&shared_sums[0], first);
  atomicAdd(&shared_sums[1], second);
  workgroupBarrier();
  if (thread < 2u) {
    atomicAdd(&sums[p.at + thread], atomicLoad(&shared_sums[thread]));
  }
}
