// Copies rows of plain numbers and pads them with zeros to a multiple of 32. One thread per 4-byte word of a padded row.
#param ELEM // bytes of a number
#param COLS // numbers of a row
#param THREADS

struct Params {
  src: u32, // first byte in the staging buffer
  dst: u32, // first row in the plane
  n: u32, // rows
  stride: u32, // threads in a row of workgroups
}
@bind var<uniform> p: Params;
@bind var<storage, read> raw: array<u32>;
@bind var<storage, read_write> w_qs: array<u32>;

const WORDS = (COLS + 31u) / 32u * 32u * ELEM / 4u;

fn half_at(byte: u32) -> u32 {
  return (raw[byte / 4u] >> ((byte & 2u) * 8u)) & 0xffffu;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let at = id.y * p.stride + id.x;
  let row = at / WORDS;
  if (row >= p.n) {
    return;
  }
  let col = at % WORDS * (4u / ELEM);
  var word = 0u;
  if (col < COLS) {
    let byte = p.src + (row * COLS + col) * ELEM;
    word = half_at(byte);
    if (ELEM == 4u || col + 1u < COLS) {
      word |= half_at(byte + 2u) << 16u;
    }
  }
  w_qs[p.dst * WORDS + at] = word;
}
