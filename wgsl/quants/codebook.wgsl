// Codebook types: a nibble is an index into `book`, 16 signed bytes. Byte j of a group has element j in its low nibble and
// element j + 16 in its high nibble.
#include "quants/group.wgsl"

fn look_up4(nibbles: u32, book: vec4u) -> u32 { // the book's entries for four nibbles, one in the low half of each byte
  let code = unpack4xU8(nibbles & 0x0f0f0f0fu);
  let odd = (code & vec4u(4)) != vec4u(0);
  let low = select(vec4u(book.x), vec4u(book.y), odd);
  let high = select(vec4u(book.z), vec4u(book.w), odd);
  let word = select(low, high, (code & vec4u(8)) != vec4u(0));
  let bytes = ((word >> (8u * (code & vec4u(3)))) & vec4u(0xff)) << vec4u(0, 8, 16, 24);
  return bytes.x | bytes.y | bytes.z | bytes.w;
}

fn book_group(q: vec4u, d: f32, book: vec4u) -> Group {
  let h = q >> vec4u(4);
  let s = vec2f(d, 0.0);
  return Group(
    vec4u(look_up4(q.x, book), look_up4(q.y, book), look_up4(q.z, book), look_up4(q.w, book)),
    vec4u(look_up4(h.x, book), look_up4(h.y, book), look_up4(h.z, book), look_up4(h.w, book)), s, s);
}
