// Groups of a codebook type with one scale each: a fragment has the book, and w_fetch.
struct Packed {
  q: vec4u,
  d: f32, // factor of the book's numbers
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  let n = book_numbers(w.q);
  return w.d * f32(group_int_dot(n.low, n.high, x[0])) * x[0].s.x;
}

fn w_load(row: u32, g: u32) -> Group {
  let w = w_fetch(row, g);
  let n = book_numbers(w.q);
  let s = vec2f(w.d, 0.0);
  return Group(n.low, n.high, s, s);
}
