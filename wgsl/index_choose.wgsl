// The index of sparse attention: sets the bits of the positions of the TOP_K keys with the highest scores of those that a
// token sees, or of all if there are no more; of joined keys, the bits of all positions of each, and those of the newest
// positions, whose keys are not joined yet. Grid (tokens).
//
// The lowest score that is chosen is found from its upper bits down, eight at a time, with a histogram of the scores that
// have the bits so far. Where more keys have that very score than places are left, one thread goes through them as
// llama.cpp does (std::partial_sort), whose choice depends on the order of all scores: a heap with the lowest score at its
// root, which each higher one replaces.
#param TOP_K
#param POOL // positions whose keys are joined; 1: none are
#param WIDTH // floats of a row of scores, a multiple of 32
#param WG

struct Params {
  first: u32, // token of the batch that the scores begin with
  tokens: u32, // rows of the scores
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> scores: array<f32>; // (tokens, WIDTH)
@bind var<storage, read_write> heap: array<u32>; // (tokens, TOP_K): keys
@bind var<storage, read_write> index_mask: array<u32>; // (n, WIDTH / 32): a bit for each position

const BINS = 256u;

var<workgroup> bins: array<atomic<u32>, BINS>;
var<workgroup> bits: u32; // of the lowest score that is chosen, so far
var<workgroup> left: u32; // places for scores with these bits
var<workgroup> more: u32; // 1: more scores than that have these bits

// Integers in the order of the scores. Zeros of both signs are equal.
fn key_of(score: f32) -> u32 {
  let word = bitcast<u32>(select(score, 0.0, score == 0.0));
  return select(word | 0x80000000u, ~word, word >> 31u == 1u);
}

fn score_at(row: u32, s: u32) -> f32 {
  return scores[row * WIDTH + s];
}

// Puts key s into the heap below place `root`: first down to a leaf, along the lower scores, then up again.
fn sift(row: u32, root: u32, s: u32) {
  var at = root;
  loop {
    var child = 2u * at + 2u;
    if (child > TOP_K) {
      break;
    }
    if (child == TOP_K || score_at(row, heap[row * TOP_K + child]) > score_at(row, heap[row * TOP_K + child - 1u])) {
      child -= 1u;
    }
    heap[row * TOP_K + at] = heap[row * TOP_K + child];
    at = child;
  }
  loop {
    if (at <= root) {
      break;
    }
    let parent = (at - 1u) / 2u;
    if (!(score_at(row, heap[row * TOP_K + parent]) > score_at(row, s))) {
      break;
    }
    heap[row * TOP_K + at] = heap[row * TOP_K + parent];
    at = parent;
  }
  heap[row * TOP_K + at] = s;
}

fn fill_heap(row: u32, begin: u32, end: u32) {
  for (var i = 0u; i < TOP_K; i++) {
    heap[row * TOP_K + i] = begin + i;
  }
  for (var i = TOP_K / 2u; i > 0u; i--) {
    sift(row, i - 1u, heap[row * TOP_K + i - 1u]);
  }
  for (var s = begin + TOP_K; s < end; s++) {
    if (score_at(row, s) > score_at(row, heap[row * TOP_K])) {
      sift(row, 0u, s);
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let row = wid.x;
  let m = p.first + row;
  if (row >= p.tokens || m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let sequence_begin = segment_begin(m);
  let positions_end = pos_of(m) + 1u;
#if POOL > 1
  let begin = 0u;
  let end = (offset_of(m) + 1u) / POOL;
  let first = sequence_begin; // position of the first key
#else
  let begin = sequence_begin;
  let end = positions_end;
  let first = 0u;
#endif
  let all = end - begin <= TOP_K;
  if (t == 0u) {
    bits = 0u;
    left = TOP_K;
    more = 0u;
  }
  if (!all) { // uniform, too
    for (var shift = 24u; shift < 32u; shift -= 8u) { // it wraps around after the last
      for (var i = t; i < BINS; i += WG) {
        atomicStore(&bins[i], 0u);
      }
      workgroupBarrier();
      let found = bits;
      for (var s = begin + t; s < end; s += WG) {
        let key = key_of(score_at(row, s));
        if (shift == 24u || key >> (shift + 8u) == found >> (shift + 8u)) {
          atomicAdd(&bins[(key >> shift) & 255u], 1u);
        }
      }
      workgroupBarrier();
      if (t == 0u) {
        var bin = BINS - 1u;
        var n = atomicLoad(&bins[bin]);
        for (; bin > 0u && n < left; bin--) {
          left -= n;
          n = atomicLoad(&bins[bin - 1u]);
        }
        bits = found | (bin << shift);
        more = select(0u, 1u, n > left);
      }
      workgroupBarrier();
    }
  }
  workgroupBarrier();
  let tied = more == 1u;
  for (var word = sequence_begin / 32u + t; word <= (positions_end - 1u) / 32u; word += WG) {
    var chosen = 0u;
    for (var i = 0u; i < 32u; i++) {
      let s = 32u * word + i;
      if (s >= sequence_begin && s < positions_end) {
        let at = (s - first) / POOL;
        let key = key_of(score_at(row, min(at, end - 1u)));
        chosen |= select(0u, 1u << i, all || at >= end || key > bits || (key == bits && !tied));
      }
    }
    index_mask[m * (WIDTH / 32u) + word] = chosen;
  }
  storageBarrier();
  if (tied && t == 0u) {
    fill_heap(row, begin, end);
    for (var i = 0u; i < TOP_K; i++) {
      let s = heap[row * TOP_K + i];
      for (var place = first + s * POOL; place < first + (s + 1u) * POOL && key_of(score_at(row, s)) == bits; place++) {
        index_mask[m * (WIDTH / 32u) + place / 32u] |= 1u << (place % 32u);
      }
    }
  }
}
