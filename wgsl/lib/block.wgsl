// The logits that a workgroup reads of a row: PARTITION of them, all before the first is used.
#param PARTITION // logits of a block; one workgroup reads them; a multiple of 4 * WG
#param WG
var<private> block_logits: array<vec4f, PARTITION / (4u * WG)>;

fn load_block(m: u32, part: u32, t: u32) { // BANNED beyond the vocabulary
#for i in PARTITION // (4 * WG)
  let first${i} = part * PARTITION + ${i}u * 4u * WG + 4u * t;
  let inside${i} = vec4u(first${i}) + vec4u(0u, 1u, 2u, 3u) < vec4u(p.vocab);
  block_logits[${i}] = select(vec4f(BANNED), logits[(m * p.stride + first${i}) / 4u], inside${i});
#endfor
}
