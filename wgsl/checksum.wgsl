// sums[at], sums[at + 1] += the two checksum words of a record: checksum() of shards.js defines them, and a test compares
// the two. Over the raw bytes, before repack. Every word adds to the sums independently, so threads take words in turn.
#param THREADS

struct Params {
  bytes: u32, // length of the record; the bytes after it are left over from an earlier record
  at: u32, // index of its first sum
  stride: u32, // threads of the dispatch
}
@bind var<uniform> p: Params;
@bind var<storage, read> raw: array<u32>;
@bind var<storage, read_write> sums: array<atomic<u32>>; // zeros at first

var<workgroup> shared_sums: array<atomic<u32>, 2>;

@compute @workgroup_size(THREADS)
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
