// Sorts raw GGUF blocks into one plane of a weight (quants.py): per block a plane record of `record` bytes, gathered from up
// to three ranges of the raw block. One kernel for every type.
//
// One thread per 4-byte word of the plane. A word holds part of a record, or several small records. Other dispatches may
// write to the same first or last word, so the plane is atomic. A repeated dispatch replaces its bytes, so a damaged record
// can be loaded again.
#param THREADS

struct Params {
  src: u32, // first byte in the staging buffer
  dst: u32, // first byte in the plane
  n: u32, // bytes of the plane that are written
  stride: u32, // threads in a row of workgroups
  block: u32, // bytes of a raw block
  record: u32, // bytes of a plane record: 1, 2, or a multiple of 4
  from0: u32, // first byte of a range in the raw block
  size0: u32, // a multiple of 4 or of `record`, except for the last range
  from1: u32,
  size1: u32,
  from2: u32,
  size2: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> raw: array<u32>;
@bind var<storage, read_write> plane: array<atomic<u32>>;

fn word_at(byte: u32) -> u32 {
  let i = byte / 4u;
  let shift = 8u * (byte & 3u);
  if (shift == 0u) {
    return raw[i];
  }
  return (raw[i] >> shift) | (raw[i + 1u] << (32u - shift));
}

// Up to four bytes of the record, from its byte `at` on; zeros after its end.
fn record_word(block: u32, at: u32) -> u32 {
  var range = vec2u(p.from0, p.size0);
  var rest = at;
  if (rest >= range.y) {
    rest -= range.y;
    range = vec2u(p.from1, p.size1);
    if (rest >= range.y) {
      rest -= range.y;
      range = vec2u(p.from2, p.size2);
    }
  }
  if (rest >= range.y) {
    return 0u;
  }
  let word = word_at(p.src + block * p.block + range.x + rest);
  let left = range.y - rest;
  return select(word & ((1u << (8u * (left & 3u))) - 1u), word, left >= 4u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let at = p.dst / 4u + id.y * p.stride + id.x;
  if (4u * at >= p.dst + p.n) {
    return;
  }
  let step = min(p.record, 4u);
  var word = 0u;
  var written = 0u;
  for (var i = 0u; i < 4u; i += step) {
    let byte = 4u * at + i;
    if (byte >= p.dst && byte < p.dst + p.n) {
      word |= record_word((byte - p.dst) / p.record, (byte - p.dst) % p.record) << (8u * i);
      written |= select((1u << (8u * step)) - 1u, 0xffffffffu, step == 4u) << (8u * i);
    }
  }
  if (4u * at >= p.dst && 4u * at + 4u <= p.dst + p.n) {
    atomicStore(&plane[at], word);
  } else {
    atomicAnd(&plane[at], ~written);
    atomicOr(&plane[at], word);
  }
}
