// Partial attention of a small batch, as attention_decode.wgsl has it, in long contexts of models whose query heads share
// keys: sum_i = sum over split i's positions of exp(score - max_i) v. Stores it with max_i and denominator_i, the sum
// without v, for attention_combine.wgsl.
//
// Grid (SHARE * key/value heads, SPLIT, tokens). What limits many heads are loads of queries and weights from workgroup
// memory, so a thread computes the scores of HT heads x 8 positions, for one of SLICES slices of the dimensions; slices add
// up theirs in the subgroup, and each keeps KEEP scores. Then a thread sums the values of all G heads for VC of their
// vectors: each loaded value is multiplied for G heads. Two barriers per tile of TS positions.
#param HEAD_DIM
#param G // query heads of a workgroup
#param SHARE // workgroups that share a key/value head, each with G of its query heads
#param TS // positions of a tile, which divides a page or is a multiple of it
#param SPLIT // splits of a key/value head's positions
#param HT // query heads of a thread's scores, 2 or 4
#param SLICES // threads that share a score's products, neighbours in a subgroup: 2 HT, 4 HT or 8 HT
#param VC // vectors of a value that a thread sums
#param TEAMS // groups of threads that share a tile's positions for the sums
#param AHEAD // groups of eight positions whose values a thread loads before the scores
#param FIRST // not 0: keys and values are the same rows; a value has the columns from FIRST on
#param ABOVE // positions of a token's context above which it is computed here
#param WINDOW // 0: a token sees the whole context
#param SOFT_CAP // cap of the scores; 0: none
#param SG

struct Params {
  scale: f32,
  n_head_kv: u32,
  q_stride: u32, // floats between tokens of q
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> q: array<vec4f>; // (n, q_stride)
#include "lib/kv_fetch.wgsl"
@bind var<storage, read_write> parts: array<vec4f>; // (n, n_head, SPLIT, VECS + 1): the sum, then (maximum, denominator)
#include "lib/attention_split.wgsl"
#if SOFT_CAP
#include "lib/soft_cap.wgsl"
#endif

const VECS = HEAD_DIM / 4u;
const VALUE_VECS = VECS - FIRST / 4u;
const OCTETS = TS / 8u; // groups of eight positions
const HEAD_GROUPS = (G + HT - 1u) / HT;
const HEADS = HEAD_GROUPS * HT;
const WG = SLICES * OCTETS * HEAD_GROUPS;
const KEEP = 8u * HT / SLICES; // scores that a thread keeps: of one head, neighbours
const KEEPING = 8u / KEEP; // threads that keep a head's scores of an octet
const COLUMNS = (VALUE_VECS + VC - 1u) / VC; // threads of a team
#if FIRST
const LOADED = 1u; // vectors of a key that a thread loads at a time
#else
const LOADED = WIDE / 4u;
#endif
const CHUNKS = VECS / LOADED; // loads of a key

// A head's queries; vector i of the load that its slice makes in turn n is at (n * LOADED + i) * SLICES + slice, so that
// neighbours read neighbouring vectors.
const PITCH = (CHUNKS + SLICES - 1u) / SLICES * SLICES * LOADED;
var<workgroup> qs: array<vec4f, HEADS * PITCH>; // at the end, a team's sums
var<workgroup> weights: array<vec4f, HEADS * TS / 4u>; // (heads, positions)
var<workgroup> tops: array<f32, HEADS * OCTETS>; // the largest score of an octet; at the end, a sum of weights
var<workgroup> factors: array<f32, HEADS>; // that a head's sums are multiplied with

fn row_of(s: u32, seq: u32, head: u32) -> u32 {
  return (row_in(page_of(s, seq), s) * p.n_head_kv + head / SHARE) * VECS;
}

fn multiplied(a: vec4f, b: vec4f, sum: f32) -> f32 {
  return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum))));
}

// Four dimensions of the values of the eight positions from s on. In place of positions after the end, which have no
// weight, others that are there.
fn octet_values(s: u32, end: u32, seq: u32, head: u32, column: u32) -> array<Value, 8u * VC> {
  var found: array<Value, 8u * VC>;
  let begin = min(s, (end - 1u) / 8u * 8u);
  let row = row_of(begin, seq, head) + FIRST / 4u;
  let last = (end - 1u - begin) * p.n_head_kv * VECS;
#for j in 8
#for c in VC
  found[${j}u * VC + ${c}u] = value_fetch(row + min(${j}u * p.n_head_kv * VECS, last) + min(${c}u * COLUMNS + column, VALUE_VECS - 1u), 0u);
#endfor
#endfor
  return found;
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
  let length = visible_range(m).y;
  if (length <= ABOVE) { // uniform: state does not change within a dispatch
    return;
  }
  let size = split_size(length);
  let first = wid.y * size;
  let end = min(first + size, length);
  if (first >= end) {
    return;
  }
  let to = (m * p.n_head_kv * SHARE + head) * G; // first row of parts
  for (var i = t; i < HEADS * VECS; i += WG) {
    let row = min(i / VECS, G - 1u);
    let c = i % VECS;
    let chunk = c / LOADED;
    let at = (chunk / SLICES * LOADED + c % LOADED) * SLICES + chunk % SLICES;
    qs[i / VECS * PITCH + at] = q[m * (p.q_stride / 4u) + (head * G + row) * VECS + c] * p.scale;
  }
  workgroupBarrier();
  let slice = t % SLICES;
  let octet = t / SLICES % OCTETS;
  let group = t / (SLICES * OCTETS);
  let own_head = group * HT + slice / KEEPING; // of the KEEP scores
  let column = t % COLUMNS;
  let team = t / COLUMNS;
  let first_octet = min(team, TEAMS - 1u); // whose values the thread sums; those after the teams do what nobody reads
  var top = -1e30;
  var total = 0.0; // denominator, of this thread's positions
  var sums: array<vec4f, VC * G>;
#for h in G
#for c in VC
  sums[${h}u * VC + ${c}u] = vec4f(0);
#endfor
#endfor
  for (var s0 = first; s0 < end; s0 += TS) {
#for a in AHEAD
    let values${a} = octet_values(s0 + 8u * (first_octet + ${a}u * TEAMS), end, seq, head, column);
#endfor
    let s = s0 + 8u * octet;
    var score: array<f32, 8u * HT>; // (HT, 8)
#for i in 8 * HT
    score[${i}] = 0.0;
#endfor
    if (s < end) {
      let row = row_of(s, seq, head);
      let last = (end - 1u - s) * p.n_head_kv * VECS; // the newest position may be within the octet
      for (var n = 0u; n < (CHUNKS + SLICES - 1u) / SLICES; n++) {
        let chunk = n * SLICES + slice;
        if (chunk < CHUNKS) {
#for j in 8
          let at${j} = row + min(${j}u * p.n_head_kv * VECS, last) + chunk * LOADED;
#if FIRST
          let k${j} = value_fetch(at${j}, 0u);
#else
          let k${j} = key_fetch(at${j} / LOADED, 0u);
#endif
#endfor
#for i in 2
          if (${i}u < LOADED) { // a compile-time constant
#for h in HT
            let q${h} = qs[(group * HT + ${h}u) * PITCH + (n * LOADED + ${i}u) * SLICES + slice];
#endfor
#for j in 8
            {
#if FIRST
              let k = value_vec(k${j});
#else
              let k = key_vec(k${j}, ${i}u);
#endif
#for h in HT
              score[${h}u * 8u + ${j}u] = multiplied(k, q${h}, score[${h}u * 8u + ${j}u]);
#endfor
            }
#endfor
          }
#endfor
        }
      }
    }
    // The slices' sums: half of the scores go to the partner, whose other half comes in return.
#for step in 4
    if ((8u * HT) >> (${step}u + 1u) >= KEEP) { // a compile-time constant
      const count = (8u * HT) >> (${step}u + 1u);
      const width = SLICES >> (${step}u + 1u);
      let upper = (slice & width) != 0u;
#for i in 4 * HT // 2 ** ${step}
      {
        let given = select(score[${i}u + count], score[${i}u], upper);
        let own = select(score[${i}u], score[${i}u + count], upper);
        score[${i}] = own + subgroupShuffleXor(given, width);
      }
#endfor
    }
#endfor
    let from_here = s + slice % KEEPING * KEEP; // the first position of its KEEP scores
    var newest_top = -1e30;
#for i in 8 * HT // SLICES
#if SOFT_CAP
    score[${i}] = capped(score[${i}], SOFT_CAP);
#endif
    score[${i}] = select(-1e30, score[${i}], from_here + ${i}u < end);
    newest_top = max(newest_top, score[${i}]);
#endfor
    for (var width = 1u; width < KEEPING; width *= 2u) {
      newest_top = max(newest_top, subgroupShuffleXor(newest_top, width));
    }
    if (slice % KEEPING == 0u) {
      tops[own_head * OCTETS + octet] = newest_top;
    }
    workgroupBarrier();
    newest_top = top;
#for o in TS // 8
    newest_top = max(newest_top, tops[own_head * OCTETS + ${o}u]);
#endfor
    let factor = exp(top - newest_top);
    top = newest_top;
    total *= factor;
    var e = vec4f(0);
#for i in 8 * HT // SLICES
    e[${i}] = exp(score[${i}] - top);
    total += e[${i}];
#endfor
#if 8 * HT // SLICES == 1
    e = vec4f(e.x, subgroupShuffleXor(e.x, 1u), subgroupShuffleXor(e.x, 2u), subgroupShuffleXor(e.x, 3u));
#endif
#if 8 * HT // SLICES == 2
    e = vec4f(e.xy, subgroupShuffleXor(e.x, 1u), subgroupShuffleXor(e.y, 1u));
#endif
    if (slice % KEEPING * KEEP % 4u == 0u) {
      weights[own_head * (TS / 4u) + octet * 2u + slice % KEEPING * KEEP / 4u] = e;
    }
    if (octet == 0u && slice % KEEPING == 0u) {
      factors[own_head] = factor;
    }
    workgroupBarrier();
#for h in G
#for c in VC
    sums[${h}u * VC + ${c}u] *= factors[${h}];
#endfor
#endfor
#for a in TS // 8 // TEAMS
#if ${a} >= AHEAD
    let values${a} = octet_values(s0 + 8u * (first_octet + ${a}u * TEAMS), end, seq, head, column);
#endif
#for c in VC
    {
#for j in 8
      let v${j} = value_vec(values${a}[${j}u * VC + ${c}u]);
#endfor
#for h in G
      {
        let at = ${h}u * (TS / 4u) + 2u * (first_octet + ${a}u * TEAMS);
        let w0 = weights[at];
        let w1 = weights[at + 1u];
        var sum = sums[${h}u * VC + ${c}u];
#for j in 4
        sum = fma(vec4f(w0[${j}]), v${j}, sum);
#endfor
#for j in 4, 8
        sum = fma(vec4f(w1[${j}u - 4u]), v${j}, sum);
#endfor
        sums[${h}u * VC + ${c}u] = sum;
      }
#endfor
    }
#endfor
#endfor
  }
  for (var width = 1u; width < KEEPING; width *= 2u) {
    total += subgroupShuffleXor(total, width);
  }
  workgroupBarrier(); // tops have been read
  if (slice % KEEPING == 0u) {
    tops[own_head * OCTETS + octet] = total;
  }
#for other in 1, TEAMS
#for h in G
#for c in VC
  if (team == ${other}u) {
    qs[(${h}u * VC + ${c}u) * COLUMNS + column] = sums[${h}u * VC + ${c}u];
  }
#endfor
#endfor
  workgroupBarrier();
  if (team == 0u) {
#for h in G
#for c in VC
    sums[${h}u * VC + ${c}u] += qs[(${h}u * VC + ${c}u) * COLUMNS + column];
#endfor
#endfor
  }
  workgroupBarrier();
#endfor
#if TEAMS == 1
  workgroupBarrier();
#endif
  if (octet == 0u && slice % KEEPING == 0u && own_head < G) {
    var sum = 0.0;
#for o in TS // 8
    sum += tops[own_head * OCTETS + ${o}u];
#endfor
    parts[((to + own_head) * SPLIT + wid.y) * (VECS + 1u) + VECS] = vec4f(top, sum, 0.0, 0.0);
  }
  if (team == 0u) {
#for h in G
#for c in VC
    if (${c}u * COLUMNS + column < VALUE_VECS) {
      parts[((to + ${h}u) * SPLIT + wid.y) * (VECS + 1u) + FIRST / 4u + ${c}u * COLUMNS + column] = sums[${h}u * VC + ${c}u];
    }
#endfor
#endfor
  }
#if FIRST
  for (var i = t; i < G * (FIRST / 4u); i += WG) {
    parts[((to + i / (FIRST / 4u)) * SPLIT + wid.y) * (VECS + 1u) + i % (FIRST / 4u)] = vec4f(0);
  }
#endif
}
