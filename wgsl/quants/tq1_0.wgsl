// TQ1_0: elements -1, 0 or 1, five in a byte. byte / 256 is a fraction in base 3: digit k is the integer part of
// 3 * ((byte * 3^k) mod 256) / 256. Byte j of the first 32 has element j of groups 0 to 4. The next 16 bytes have the halves
// of groups 5 and 6 and the first half of group 7. The last four bytes have its second half, four digits each.
@bind var<storage, read> w_qs: array<vec4u>; // 3 per block
@bind var<storage, read> w_d: array<vec2u>; // the last 16 elements, d
#include "quants/group.wgsl"

fn tq1_0_digits(word: u32, power: u32) -> u32 { // element + 1
  return pack4xU8((((unpack4xU8(word) * power) & vec4u(0xff)) * 3u) >> vec4u(8));
}

fn tq1_0_power(k: u32) -> u32 { // 3^k for k < 5
  return select(select(select(select(81u, 27u, k == 3u), 9u, k == 2u), 3u, k == 1u), 1u, k == 0u);
}

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let r = w_d[block];
  let d = unpack2x16float(r.y).x;
  let wide = sub < 5u;
  let k = select(2u * (sub - 5u), sub, wide); // digit of the first half
  let last = sub == 7u; // second half of group 7: one word, digits 0 to 3
  let a = w_qs[block * 3u + select(2u, 0u, wide)];
  let b = select(w_qs[block * 3u + select(2u, 1u, wide)], vec4u(r.x), last);
  let p = tq1_0_power(k);
  let step = vec4u(select(tq1_0_power(k + 1u), p, wide));
  let q = select(step, vec4u(1, 3, 9, 27), last);
  return Group(
    vec4u(tq1_0_digits(a.x, p), tq1_0_digits(a.y, p), tq1_0_digits(a.z, p), tq1_0_digits(a.w, p)),
    vec4u(tq1_0_digits(b.x, q.x), tq1_0_digits(b.y, q.y), tq1_0_digits(b.z, q.z), tq1_0_digits(b.w, q.w)),
    vec2f(d), vec2f(d));
}
