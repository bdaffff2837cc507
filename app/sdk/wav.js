/** Writes WAV files. */

const HEADER = 44; // bytes
const PCM = 1;
const FLOAT = 3;

/** A WAV file with 16 bits a sample, which every model and server takes. @param {Float32Array} samples mono @param {number} rate */
export function wavOf(samples, rate) {
  const view = fileFor({ code: PCM, bytes: 2, channels: 1, rate }, samples.length);
  samples.forEach((sample, i) => view.setInt16(HEADER + 2 * i, Math.max(-1, Math.min(1, sample)) * 32767, true));
  return new Blob([view], { type: "audio/wav" });
}

/** A WAV file with the very samples of an AudioBuffer: 32-bit floats, all channels. @param {AudioBuffer} buffer */
export function exactWavOf(buffer) {
  const { numberOfChannels: channels, length, sampleRate: rate } = buffer;
  const view = fileFor({ code: FLOAT, bytes: 4, channels, rate }, length);
  for (let c = 0; c < channels; c++) {
    const samples = buffer.getChannelData(c);
    for (let i = 0; i < length; i++) view.setFloat32(HEADER + 4 * (i * channels + c), samples[i], true);
  }
  return new Blob([view], { type: "audio/wav" });
}

/**
 * A file's header, and space for its samples.
 * @param {{ code: number, bytes: number, channels: number, rate: number }} format `bytes`: of a sample
 * @param {number} length samples a channel @returns {DataView<ArrayBuffer>}
 */
function fileFor({ code, bytes, channels, rate }, length) {
  const frame = bytes * channels; // a sample of every channel
  const view = new DataView(new ArrayBuffer(HEADER + frame * length));
  const text = (/** @type {number} */ at, /** @type {string} */ letters) =>
    [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, view.byteLength - 8, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, code, true);
  view.setUint16(22, channels, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, frame * rate, true);
  view.setUint16(32, frame, true);
  view.setUint16(34, 8 * bytes, true);
  text(36, "data");
  view.setUint32(40, frame * length, true);
  return view;
}
