/**
 * Reads WAV files, and makes sound mono at another rate as llama.cpp's reader (miniaudio) does: a Butterworth low-pass of
 * fourth order, then linear interpolation.
 *
 * @typedef {{ rate: number, channels: number, samples: Float32Array }} Clip samples of all channels in turn
 */
const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe; // the format is the first number of a GUID

/**
 * @param {Uint8Array} bytes of a WAV file
 * @returns {Clip | null} null for encodings that the browser has to decode, and for damaged files
 */
export function readWav(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const name = (/** @type {number} */ at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  /** @type {{ code: number, channels: number, rate: number, bits: number } | undefined} */
  let format;
  for (let at = 12; at + 8 <= bytes.length;) {
    const begin = at + 8;
    const size = Math.min(view.getUint32(at + 4, true), bytes.length - begin);
    if (name(at) === "fmt " && size >= 16) {
      const code = view.getUint16(begin, true);
      format = {
        code: code === EXTENSIBLE && size >= 26 ? view.getUint16(begin + 24, true) : code,
        channels: view.getUint16(begin + 2, true),
        rate: view.getUint32(begin + 4, true),
        bits: view.getUint16(begin + 14, true),
      };
    } else if (name(at) === "data" && format) {
      const { code, channels, rate, bits } = format;
      const read = READERS[`${code}/${bits}`];
      if (!read || !channels || !rate) return null;
      const samples = new Float32Array(Math.floor(size / ((bits / 8) * channels)) * channels);
      for (let i = 0; i < samples.length; i++) samples[i] = read(view, begin + (i * bits) / 8);
      return { rate, channels, samples };
    }
    at = begin + size + (size & 1);
  }
  return null;
}

/** @type {Record<string, (view: DataView, at: number) => number>} format and bits -> a reader of one sample */
const READERS = {
  [`${PCM}/8`]: (view, at) => view.getUint8(at) / 127.5 - 1,
  [`${PCM}/16`]: (view, at) => view.getInt16(at, true) / 2 ** 15,
  [`${PCM}/24`]: (view, at) => (view.getUint16(at, true) + view.getInt8(at + 2) * 2 ** 16) / 2 ** 23,
  [`${PCM}/32`]: (view, at) => view.getInt32(at, true) / 2 ** 31,
  [`${FLOAT}/32`]: (view, at) => view.getFloat32(at, true),
  [`${FLOAT}/64`]: (view, at) => view.getFloat64(at, true),
};

/** @param {Clip} clip @param {number} wanted samples a second @returns {Float32Array} mono at that rate */
export function toMono({ rate, channels, samples }, wanted) {
  const mono = new Float32Array(samples.length / channels);
  for (let i = 0; i < mono.length; i++) {
    let sum = 0;
    for (let c = 0; c < channels; c++) sum += samples[i * channels + c];
    mono[i] = sum / channels;
  }
  if (rate === wanted) return mono;
  if (rate > wanted) return interpolated(lowPass(mono, wanted / rate), rate, wanted);
  return lowPass(interpolated(mono, rate, wanted), rate / wanted);
}

/**
 * Removes frequencies above `ratio` times the Nyquist frequency. Changes the samples in place.
 * @param {Float32Array} samples @param {number} ratio
 */
function lowPass(samples, ratio) {
  for (const stage of [1, 3]) {
    const angle = Math.PI * ratio;
    const alpha = Math.sin(angle) * Math.cos((stage * Math.PI) / 8); // 1 / 2q, with q = 1 / (2 cos)
    const cos = Math.cos(angle);
    const b0 = (1 - cos) / 2 / (1 + alpha);
    const a1 = (-2 * cos) / (1 + alpha);
    const a2 = (1 - alpha) / (1 + alpha);
    let r1 = 0;
    let r2 = 0;
    for (let i = 0; i < samples.length; i++) {
      const x = samples[i];
      const y = b0 * x + r1;
      r1 = 2 * b0 * x - a1 * y + r2;
      r2 = b0 * x - a2 * y;
      samples[i] = y;
    }
  }
  return samples;
}

/**
 * How many samples a clip has at another rate. One more, which may be silent, where miniaudio expects the clip to suffice
 * for it: multiples of that rate, rates just above, and clips of a few samples.
 * @param {number} count of the clip's samples @param {number} rate of them @param {number} wanted
 */
function countAtRate(count, rate, wanted) {
  const found = Math.floor((count * wanted) / rate);
  const expected = found * (rate % wanted) + Math.floor((found * Math.floor(rate / wanted)) / wanted);
  return found + (count && expected <= count ? 1 : 0);
}

/**
 * Samples at another rate on straight lines between the samples. The first line begins at 0.
 * @param {Float32Array} samples @param {number} rate of them @param {number} wanted
 */
function interpolated(samples, rate, wanted) {
  const out = new Float32Array(countAtRate(samples.length, rate, wanted));
  for (let k = 0; k < out.length; k++) {
    const at = k * rate; // in units of 1 / wanted samples
    const i = Math.floor(at / wanted);
    if (i >= samples.length) break;
    const before = i ? samples[i - 1] : 0;
    out[k] = before + ((at % wanted) / wanted) * (samples[i] - before);
  }
  return out;
}
