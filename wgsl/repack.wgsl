// Sort raw GGUF blocks (BLOCK_BYTES each: an f16 scale, then the numbers) into the planes of quants.py.
// One thread a block. `d` is atomic because two scales share a word; it starts as zeros.
#param BLOCK_BYTES
#param QS_WORDS // 4-byte words of numbers in a block

struct Params {
  src: u32, // first byte in the staging buffer
  dst: u32, // first block in the planes
  n: u32, // blocks
  stride: u32, // threads in a row of workgroups
}
@bind var<uniform> p: Params;
@bind var<storage, read> raw: array<u32>;
@bind var<storage, read_write> w_qs: array<u32>;
@bind var<storage, read_write> w_d: array<atomic<u32>>;

fn word_at(byte: u32) -> u32 { // blocks start on even bytes
  let i = byte / 4u;
  if ((byte & 2u) == 0u) {
    return raw[i];
  }
  return (raw[i] >> 16u) | (raw[i + 1u] << 16u);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let b = id.y * p.stride + id.x;
  if (b >= p.n) {
    return;
  }
  let at = p.src + b * BLOCK_BYTES;
  let d = (raw[at / 4u] >> ((at & 2u) * 8u)) & 0xffffu;
  let to = p.dst + b;
  atomicOr(&w_d[to / 2u], d << ((to & 1u) * 16u));
  for (var i = 0u; i < QS_WORDS; i++) {
    w_qs[to * QS_WORDS + i] = word_at(at + 2u + 4u * i);
  }
}
