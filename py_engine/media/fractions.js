/**
 * Resizes by linear interpolation, without rounding to bytes. A result is a picture of twice the height: the whole parts
 * of all values, then their 256ths. That is finer than float16, to which llama.cpp rounds them.
 *
 * @typedef {import("./resize.js").Picture} Picture
 */

/**
 * @param {Picture} picture @param {[number, number]} size width and height
 * @returns {Picture}
 */
export function resizeFinely(picture, [width, height]) {
  const { pixels } = picture;
  const out = new Uint8Array(6 * width * height);
  const below = 3 * width * height;
  if (width === picture.width && height === picture.height) {
    out.set(pixels);
    return { width, height: 2 * height, pixels: out };
  }
  const across = places(picture.width, width, 3);
  const down = places(picture.height, height, 3 * picture.width);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let colour = 0; colour < 3; colour++, at++) {
        const first = across.first[x] + colour;
        const second = across.second[x] + colour;
        const top = mix(pixels[down.first[y] + first], pixels[down.first[y] + second], across.part[x]);
        const bottom = mix(pixels[down.second[y] + first], pixels[down.second[y] + second], across.part[x]);
        const value = Math.round(256 * mix(top, bottom, down.part[y]));
        out[at] = value >> 8;
        out[below + at] = value & 255;
      }
    }
  }
  return { width, height: 2 * height, pixels: out };
}

/** @param {number} a @param {number} b @param {number} part */
const mix = (a, b, part) => a + (b - a) * part;

/**
 * The two pixels that each target pixel lies between, and how near it is to the second. In float32, as llama.cpp has it:
 * in a large picture, its rounding moves pixels by more than a 256th.
 * @param {number} source @param {number} target @param {number} stride bytes from pixel to pixel
 */
function places(source, target, stride) {
  const scale = Math.fround(source / target);
  const first = new Int32Array(target);
  const second = new Int32Array(target);
  const part = new Float32Array(target);
  for (let i = 0; i < target; i++) {
    const at = Math.fround(Math.fround((i + 0.5) * scale) - 0.5);
    const before = Math.floor(at);
    first[i] = stride * Math.min(Math.max(before, 0), source - 1);
    second[i] = stride * Math.min(Math.max(before + 1, 0), source - 1);
    part[i] = at - before;
  }
  return { first, second, part };
}
