// Numbers named by nibbles: `book` holds 16 signed bytes.
fn book4(nibbles: u32, book: vec4u) -> vec4f {
  let code = unpack4xU8(nibbles & 0x0f0f0f0fu);
  let low = select(vec4u(book.x), vec4u(book.y), (code & vec4u(4)) != vec4u(0));
  let high = select(vec4u(book.z), vec4u(book.w), (code & vec4u(4)) != vec4u(0));
  let word = select(low, high, (code & vec4u(8)) != vec4u(0));
  return vec4f(bitcast<vec4i>(word << (vec4u(24) - 8u * (code & vec4u(3)))) >> vec4u(24));
}

// A group of 16 bytes: byte j names number j by its low and number j + 16 by its high nibble.
fn book_group(q: vec4u, d: f32, book: vec4u) -> array<vec4f, 8> {
  let h = q >> vec4u(4);
  return array(
    d * book4(q.x, book), d * book4(q.y, book), d * book4(q.z, book), d * book4(q.w, book),
    d * book4(h.x, book), d * book4(h.y, book), d * book4(h.z, book), d * book4(h.w, book));
}
