// Partial attention of a small batch: sum_i = sum over split i's positions of exp(score - max_i) v. Stores it with max_i
// and denominator_i, the sum without v, for attention_combine.wgsl.
//
// Grid (SHARE * key/value heads, SPLIT, tokens). The rows are the G query heads that share a key/value head, so keys and values
// are loaded once for all of them. A workgroup goes through its split in tiles of TS positions: scores, softmax with a
// running maximum, weighted sum of the values.
#param HEAD_DIM
#param G // query heads per key/value head
#param SHARE // workgroups that share a key/value head, each with G of its query heads
#param TS // positions of a tile, a power of two, at most 2 * PAGE
#param PARTS // threads that share a position's dot products, neighbours in a subgroup
#param SPLIT // splits of a key/value head's positions
#param WINDOW // positions that a token sees, itself included; 0: all
#param CHUNKED // see lib/visible.wgsl
#param SOFT_CAP // cap of the scores; 0: none
#param SG
#param KEYS // key loads that a thread has in flight
#param VALUES // rows of values that a thread loads before the scores are known
#param ALIBI // 1: scores fall with the distance, by a slope per head (ALiBi, Press et al. 2022)
#param RELATIVE // not 0: scores get a bias (lib/relative_bias.wgsl)
#param INDEXED // not 0: a token attends to the positions of its bits in a mask, which has so many words a token
#param FRESH // 1: the token's own key and value are read before they are in a q8_0 cache, or as if they were not yet
#param UP_TO // positions of a token's context up to which it is computed here; 0: of any
#param NORMS // 1: one token's stacked q, k and v rows are normalised and rotated here (lib/heads.wgsl); 2: its q rows, of
             // a layer that reads another one's cache

struct Params {
  scale: f32,
  n_head_kv: u32,
#if NORMS
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  eps: f32,
#else
  q_stride: u32, // floats between tokens of q
#endif
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
#if NORMS
#include "lib/kv_fetch.wgsl" with read=read_write
#else
@bind var<storage, read> q: array<vec4f>; // (n, q_stride)
#include "lib/kv_fetch.wgsl"
#endif
#if FRESH
#include "lib/kv_fresh.wgsl"
#endif
#if ALIBI
@bind var<storage, read> slopes: array<f32>; // (n_head)
#endif
#if RELATIVE
#include "lib/relative_bias.wgsl"
#endif
#if INDEXED
@bind var<storage, read> index_mask: array<u32>; // (n, INDEXED)
#endif
@bind var<storage, read_write> parts: array<vec4f>; // (n, n_head, SPLIT, VECS + 1): the sum, then (maximum, denominator)
#include "lib/attention_split.wgsl"
#if SOFT_CAP
#include "lib/soft_cap.wgsl"
#endif

const VECS = HEAD_DIM / 4u;
const CHUNKS = HEAD_DIM / WIDE; // loads of a key
const WG = TS * PARTS;
const LANES = max(1u, WG / VECS); // positions that are summed in parallel

var<workgroup> qs: array<vec4f, G * VECS>;
var<workgroup> weights: array<f32, G * TS>;
#if TS * PARTS >= HEAD_DIM // 2 or FRESH or (NORMS and KV == "q8_0")
var<workgroup> partial: array<vec4f, max(G * LANES, 2u) * VECS>;
#endif
#include "lib/reduce_rows.wgsl"
#if NORMS
#include "lib/heads.wgsl"
#endif

// Pages of the tile from s0 on: up to three, since a window, the decoder's tokens and FROM may begin anywhere in a page.
// Looked up once per tile.
fn tile_pages(s0: u32, end: u32, seq: u32) -> vec3u {
  var pages = vec3u(page_of(s0, seq));
#if WINDOW or PART or FROM or TS > PAGE
  pages.y = page_of(min(s0 + PAGE, end - 1u), seq);
#endif
#if (WINDOW or PART or FROM) and TS > PAGE
  pages.z = page_of(min(s0 + 2u * PAGE, end - 1u), seq);
#endif
  return pages;
}

fn tile_page(s: u32, s0: u32, pages: vec3u) -> u32 {
#if WINDOW or PART or FROM or TS > PAGE
  let i = s / PAGE - s0 / PAGE;
  return select(select(pages.x, pages.y, i == 1u), pages.z, i == 2u);
#else
  return pages.x;
#endif
}

// Position that is read for s. Where a workgroup of this dispatch stores the newest one, it is the neighbour in the page in
// place of that.
fn readable(s: u32, length: u32) -> u32 {
#if NORMS == 1
  return select(s, s ^ 1u, s + 1u == length);
#else
  return s;
#endif
}

fn value_at(s: u32, head: u32, page: u32) -> u32 {
  return (row_in(page, s) * p.n_head_kv + head / SHARE) * VECS;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let head = wid.x;
  let m = wid.z;
#if STATE_PER_TOKEN
  if (m >= count()) {
    return;
  }
#endif
  let seq = seq_of(m);
  let seen = visible_range(m);
  let length = seen.y;
#if UP_TO
  if (length > UP_TO) { // attention_decode_tiles.wgsl computes it
    return;
  }
#endif
  let size = split_size(length - seen.x);
  let first = seen.x + wid.y * size;
  let end = min(first + size, length);
  if (first >= end) { // uniform: state does not change within a dispatch
    return;
  }
  let lane = t / VECS;
  let to = (m * p.n_head_kv * SHARE + head) * G; // first row of parts
  // One variable per row: an array would be in slow memory where the compiler does not unroll.
#for g in G
  var top${g} = -1e30;
  var total${g} = 0.0; // denominator, of this thread's positions
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
  var sum${g}_${c} = vec4f(0);
#endfor
#endfor
  for (var s0 = first; s0 < end; s0 += TS) {
    let s = s0 + t / PARTS;
    let pages = tile_pages(s0, end, seq);
    let count = min(TS, end - s0);
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
    let column${c} = min(t % VECS + ${c}u * WG, VECS - 1u);
#for j in VALUES
    let at${j}_${c} = s0 + min(lane + ${j}u * LANES, count - 1u);
    let page${j}_${c} = tile_page(at${j}_${c}, s0, pages);
    let v${j}_${c} = value_fetch(value_at(readable(at${j}_${c}, length), head, page${j}_${c}) + column${c}, page${j}_${c});
#endfor
#endfor
#for g in G
    var score${g} = 0.0;
#endfor
    let key_page = tile_page(min(s, end - 1u), s0, pages);
    let row = (row_in(key_page, readable(min(s, end - 1u), length)) * p.n_head_kv + head / SHARE) * CHUNKS;
    for (var c0 = 0u; c0 < CHUNKS; c0 += KEYS * PARTS) {
#for c in KEYS
      let chunk${c} = c0 + ${c}u * PARTS + t % PARTS;
      let k${c} = key_fetch(row + min(chunk${c}, CHUNKS - 1u), key_page);
#endfor
      if (s0 == first && c0 == 0u) { // the first loads are in flight
#if NORMS
        heads_load(head, NORMS == 1u && end == length, t);
#else
        for (var i = t; i < G * VECS; i += WG) {
          qs[i] = q[m * (p.q_stride / 4u) + head * G * VECS + i] * p.scale;
        }
#endif
#if FRESH
        if (end == length) {
          fresh_load(head / SHARE, m, t);
        }
#endif
        workgroupBarrier();
#if NORMS == 1
        if (end == length && head % SHARE == 0u) {
          let page = page_of(length - 1u, seq);
          heads_store(page, row_in(page, length - 1u), head, t);
        }
#endif
      }
#for c in KEYS
      if (chunk${c} < CHUNKS) {
#for i in 4
        if (${i}u < WIDE / 4u) { // a compile-time constant
          let at = chunk${c} * (WIDE / 4u) + ${i}u;
          var k = key_vec(k${c}, ${i}u);
#if FRESH or NORMS == 1
          if (s + 1u == length) {
            k = newest_key(at);
          }
#endif
#for g in G
          score${g} += dot(k, qs[${g}u * VECS + at]);
#endfor
        }
#endfor
      }
#endfor
    }
#if INDEXED
    let shown = s < end && ((index_mask[m * INDEXED + min(s, end - 1u) / 32u] >> (s % 32u)) & 1u) == 1u;
#else
    let shown = s < end;
#endif
#for g in G
#if PARTS > 1
    for (var width = 1u; width < PARTS; width *= 2u) {
      score${g} += subgroupShuffleXor(score${g}, width);
    }
#endif
#if SOFT_CAP
    score${g} = capped(score${g}, SOFT_CAP);
#endif
#if ALIBI
    score${g} -= slopes[head * G + ${g}u] * f32(length - 1u - min(s, length - 1u));
#endif
#if RELATIVE
    score${g} += relative_bias(i32(min(s, length - 1u)) - i32(length - 1u), head * G + ${g}u, p.n_head_kv * SHARE * G);
#endif
    score${g} = select(-1e30, score${g}, shown);
    rows_put_max(${g}u, score${g}, t);
#endfor
    workgroupBarrier();
#for g in G
    {
      let new_top = max(top${g}, rows_get_max(${g}u));
      let rescale = exp(top${g} - new_top);
      top${g} = new_top;
      total${g} *= rescale;
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
      sum${g}_${c} *= rescale;
#endfor
      if (t % PARTS == 0u) {
        let e = select(0.0, exp(score${g} - new_top), shown);
        weights[${g}u * TS + t / PARTS] = e;
        total${g} += e;
      }
    }
#endfor
    workgroupBarrier();
    if (lane < LANES) {
#for j in VALUES
      {
        let i = lane + ${j}u * LANES;
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
        {
          var v = value_vec(v${j}_${c});
#if FRESH or NORMS == 1
          if (at${j}_${c} + 1u == length) {
            v = newest_value(column${c});
          }
#endif
#for g in G
          sum${g}_${c} += select(0.0, weights[${g}u * TS + min(i, TS - 1u)], i < count) * v;
#endfor
        }
#endfor
      }
#endfor
      for (var i = lane + VALUES * LANES; i < count; i += 4u * LANES) { // four loads in flight
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
#for j in 4
        let at${j}_${c} = s0 + min(i + ${j}u * LANES, count - 1u);
        let page${j}_${c} = tile_page(at${j}_${c}, s0, pages);
        let w${j}_${c} = value_fetch(value_at(readable(at${j}_${c}, length), head, page${j}_${c}) + column${c}, page${j}_${c});
#endfor
#endfor
#for j in 4
        {
          let position = i + ${j}u * LANES;
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
          {
            var v = value_vec(w${j}_${c});
#if FRESH or NORMS == 1
            if (at${j}_${c} + 1u == length) {
              v = newest_value(column${c});
            }
#endif
#for g in G
            sum${g}_${c} += select(0.0, weights[${g}u * TS + min(position, TS - 1u)], position < count) * v;
#endfor
          }
#endfor
        }
#endfor
      }
    }
    workgroupBarrier();
  }
#for g in G
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
  if (lane < LANES && t % VECS + ${c}u * WG < VECS) {
#if TS * PARTS >= HEAD_DIM // 2
    partial[(${g}u * LANES + lane) * VECS + t % VECS + ${c}u * WG] = sum${g}_${c};
#else
    parts[((to + ${g}u) * SPLIT + wid.y) * (VECS + 1u) + t % VECS + ${c}u * WG] = sum${g}_${c}; // LANES is 1
#endif
  }
#endfor
  rows_put_sum(${g}u, total${g}, t);
#endfor
  workgroupBarrier();
#if TS * PARTS >= HEAD_DIM // 2
  for (var i = t; i < G * VECS; i += WG) {
    let g = i / VECS;
    var sum = vec4f(0);
    for (var l = 0u; l < LANES; l++) {
      sum += partial[(g * LANES + l) * VECS + i % VECS];
    }
    parts[((to + g) * SPLIT + wid.y) * (VECS + 1u) + i % VECS] = sum;
  }
#endif
  if (t == 0u) {
#for g in G
    parts[((to + ${g}u) * SPLIT + wid.y) * (VECS + 1u) + VECS] = vec4f(top${g}, rows_get_sum(${g}u), 0.0, 0.0);
#endfor
  }
}
