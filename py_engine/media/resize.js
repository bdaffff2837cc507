/**
 * Pillow's resampler, bit for bit: two passes, columns first, with weights of 22 fractional bits, each rounded to bytes.
 * Pictures are RGB bytes, row by row. The passes run in WebAssembly (wasm/media/resize.c), which is some
 * six times as fast as JavaScript.
 *
 * @typedef {{ width: number, height: number, pixels: Uint8Array | Uint8ClampedArray }} Picture
 * @typedef {"bilinear" | "bicubic" | "lanczos"} Filter
 */
import { RESIZE_MODULE } from "./resize_module.js";

const BITS = 22;
const LOW = 11; // bits of a weight's lower part
const PAIR = 4; // words of two taps' weights
const BLOCK = 16; // bytes that rows are padded to
const BAND = 64; // rows of a large picture that are copied at once
const PAGE = 1 << 16; // bytes of WebAssembly's memory

/** @param {number} x */
const sinc = (x) => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));

/** @type {Record<Filter, { support: number, at: (x: number) => number }>} */
const FILTERS = {
  bilinear: { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    support: 2,
    at(x) {
      const d = Math.abs(x);
      if (d < 1) return (1.5 * d - 2.5) * d * d + 1;
      return d < 2 ? (((d - 5) * d + 8) * d - 4) * -0.5 : 0;
    },
  },
  lanczos: { support: 3, at: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** @type {WebAssembly.Module | undefined} */
let compiled;

/** Resizes in a memory of its own, which is as large as the largest picture needs and is freed with it. */
export class Resizer {
  #memory = new WebAssembly.Memory({ initial: 0 });
  #used = 0;
  #exports;

  constructor() {
    compiled ??= new WebAssembly.Module(Uint8Array.from(atob(RESIZE_MODULE), (character) => character.charCodeAt(0)));
    this.#exports = /** @type {Record<"columns" | "rows", (...values: number[]) => void>} */ (
      new WebAssembly.Instance(compiled, { env: { memory: this.#memory } }).exports
    );
  }

  /**
   * @param {Picture} picture @param {number} width @param {number} height @param {Filter} filter
   * @returns {Picture}
   */
  resize(picture, width, height, filter) {
    if (width === picture.width && height === picture.height) return picture;
    this.#used = 0;
    const stride = padded(3 * width);
    const across = width !== picture.width && this.#taps(picture.width, width, filter);
    const down = height !== picture.height && this.#taps(picture.height, height, filter);
    const middle = this.#place(stride * (picture.height + 1)); // rows() may read one more
    const result = down ? this.#place(stride * height) : middle;
    if (across) this.#columns(picture, middle, stride, across);
    else this.#bytes().set(withStride(picture.pixels, picture.height, 3 * width, stride), middle);
    if (down) this.#exports.rows(middle, stride, result, down);
    const rows = this.#bytes().subarray(result, result + stride * height);
    return { width, height, pixels: withStride(rows, height, stride, 3 * width) };
  }

  /** @param {Picture} picture @param {number} to @param {number} stride @param {number} taps where they are */
  #columns({ width, height, pixels }, to, stride, taps) {
    const band = this.#place(3 * width * BAND + BLOCK);
    for (let y = 0; y < height; y += BAND) {
      const rows = Math.min(BAND, height - y);
      this.#bytes().set(pixels.subarray(3 * width * y, 3 * width * (y + rows)), band);
      this.#exports.columns(band, 3 * width, rows, to + stride * y, stride, taps);
    }
  }

  /** Places the taps of a pass. @param {number} source @param {number} target @param {Filter} filter */
  #taps(source, target, filter) {
    const { most, first, pairs, weights } = tapsOf(source, target, filter);
    const places = [first, pairs, weights].map((table) => this.#placed(table));
    return this.#placed(Int32Array.of(target, most, ...places));
  }

  /** @param {Int32Array | Int16Array} table */
  #placed(table) {
    const at = this.#place(table.byteLength);
    this.#bytes().set(new Uint8Array(table.buffer), at);
    return at;
  }

  /** Where so many bytes are free, whose contents do not matter. @param {number} size */
  #place(size) {
    const at = this.#used;
    this.#used += padded(size);
    const lacking = this.#used - this.#memory.buffer.byteLength;
    if (lacking > 0) this.#memory.grow(Math.ceil(lacking / PAGE));
    return at;
  }

  /** The memory, which is another object each time it has grown. */
  #bytes() {
    return new Uint8Array(this.#memory.buffer);
  }
}

/** @param {number} size in bytes */
const padded = (size) => Math.ceil(size / BLOCK) * BLOCK;

/**
 * A copy of rows that begin `to` bytes from each other.
 * @param {Picture["pixels"]} rows @param {number} count @param {number} from bytes from row to row @param {number} to
 */
function withStride(rows, count, from, to) {
  if (from === to) return rows.slice();
  const out = new Uint8Array(count * to);
  for (let y = 0; y < count; y++) out.set(rows.subarray(y * from, y * from + Math.min(from, to)), y * to);
  return out;
}

/**
 * The source pixels that each target pixel is made of, and their weights, as resize.c takes them.
 * @param {number} source @param {number} target @param {Filter} filter
 */
function tapsOf(source, target, filter) {
  const { support, at } = FILTERS[filter];
  const scale = source / target;
  const wide = Math.max(1, scale);
  const reach = support * wide;
  const most = Math.ceil(reach) + 1; // pairs
  const first = new Int32Array(target);
  const pairs = new Int32Array(target);
  const weights = new Int16Array(target * most * PAIR);
  const raw = new Float64Array(2 * most);
  for (let i = 0; i < target; i++) {
    const centre = (i + 0.5) * scale;
    first[i] = Math.max(0, Math.trunc(centre - reach + 0.5));
    const count = Math.min(source, Math.trunc(centre + reach + 0.5)) - first[i];
    pairs[i] = Math.ceil(count / 2);
    let sum = 0;
    for (let k = 0; k < count; k++) sum += raw[k] = at((k + first[i] - centre + 0.5) * (1 / wide));
    for (let k = 0; k < count; k++) {
      const exact = (raw[k] / sum) * 2 ** BITS;
      const weight = Math.trunc(exact + (exact < 0 ? -0.5 : 0.5));
      const o = (i * most + (k >> 1)) * PAIR + (k & 1);
      weights[o] = weight >> LOW;
      weights[o + 2] = weight & ((1 << LOW) - 1);
    }
  }
  return { most, first, pairs, weights };
}
