/**
 * Pillow's resampler, bit for bit: two passes, columns first, with weights of 22 fractional bits, each rounded to bytes.
 * Pictures are RGB bytes, row by row.
 *
 * @typedef {{ width: number, height: number, pixels: Uint8Array | Uint8ClampedArray }} Picture
 * @typedef {"bilinear" | "bicubic" | "lanczos"} Filter
 */
const BITS = 22;
const HALF = 1 << (BITS - 1);

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

/**
 * @param {Picture} picture @param {number} width @param {number} height @param {Filter} filter
 * @returns {Picture}
 */
export function resize(picture, width, height, filter) {
  let { pixels } = picture;
  if (width !== picture.width) pixels = columns(pixels, picture.width, picture.height, width, filter);
  if (height !== picture.height) pixels = rows(pixels, width, picture.height, height, filter);
  return { width, height, pixels };
}

/**
 * The weights of the source pixels that each target pixel is made of.
 * @param {number} source @param {number} target @param {Filter} filter
 */
function weightsOf(source, target, filter) {
  const { support, at } = FILTERS[filter];
  const scale = source / target;
  const wide = Math.max(1, scale);
  const reach = support * wide;
  const taps = Math.ceil(reach) * 2 + 1;
  const first = new Int32Array(target);
  const count = new Int32Array(target);
  const weights = new Int32Array(target * taps);
  const raw = new Float64Array(taps);
  for (let i = 0; i < target; i++) {
    const centre = (i + 0.5) * scale;
    first[i] = Math.max(0, Math.trunc(centre - reach + 0.5));
    count[i] = Math.min(source, Math.trunc(centre + reach + 0.5)) - first[i];
    let sum = 0;
    for (let k = 0; k < count[i]; k++) sum += raw[k] = at((k + first[i] - centre + 0.5) * (1 / wide));
    for (let k = 0; k < count[i]; k++) {
      const weight = (raw[k] / sum) * 2 ** BITS;
      weights[i * taps + k] = Math.trunc(weight + (weight < 0 ? -0.5 : 0.5));
    }
  }
  return { taps, first, count, weights };
}

/** @param {Picture["pixels"]} pixels @param {number} width @param {number} height @param {number} target @param {Filter} filter */
function columns(pixels, width, height, target, filter) {
  const { taps, first, count, weights } = weightsOf(width, target, filter);
  const out = new Uint8ClampedArray(target * height * 3);
  let o = 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < target; x++) {
      let r = HALF;
      let g = HALF;
      let b = HALF;
      let p = (y * width + first[x]) * 3;
      const end = x * taps + count[x];
      for (let k = x * taps; k < end; k++) {
        const weight = weights[k];
        r = (r + Math.imul(pixels[p], weight)) | 0;
        g = (g + Math.imul(pixels[p + 1], weight)) | 0;
        b = (b + Math.imul(pixels[p + 2], weight)) | 0;
        p += 3;
      }
      out[o++] = r >> BITS;
      out[o++] = g >> BITS;
      out[o++] = b >> BITS;
    }
  }
  return out;
}

/** @param {Picture["pixels"]} pixels @param {number} width @param {number} height @param {number} target @param {Filter} filter */
function rows(pixels, width, height, target, filter) {
  const { taps, first, count, weights } = weightsOf(height, target, filter);
  const length = width * 3;
  const out = new Uint8ClampedArray(target * length);
  const sums = new Int32Array(length);
  for (let y = 0; y < target; y++) {
    sums.fill(HALF);
    for (let k = 0; k < count[y]; k++) {
      const weight = weights[y * taps + k];
      const from = (first[y] + k) * length;
      for (let i = 0; i < length; i++) sums[i] = (sums[i] + Math.imul(pixels[from + i], weight)) | 0;
    }
    for (let i = 0; i < length; i++) out[y * length + i] = sums[i] >> BITS;
  }
  return out;
}
