/** Decodes sound for the engine: only pages have an audio context. The browser decodes in a thread of its own. */

/**
 * @param {Uint8Array<ArrayBuffer>} bytes @param {number} rate samples a second
 * @returns {Promise<Float32Array<ArrayBuffer>>} mono
 */
export async function samplesOf(bytes, rate) {
  const buffer = await new OfflineAudioContext(1, 1, rate).decodeAudioData(bytes.buffer);
  const samples = new Float32Array(buffer.length);
  for (let c = 0; c < buffer.numberOfChannels; c++) {
    const channel = buffer.getChannelData(c);
    for (let i = 0; i < samples.length; i++) samples[i] += channel[i] / buffer.numberOfChannels;
  }
  return samples;
}

/** @param {{ bytes: Uint8Array<ArrayBuffer>, rate: number, answer: MessagePort }} message gets {result} or {error} */
export async function decodeSound({ bytes, rate, answer }) {
  try {
    const samples = await samplesOf(bytes, rate);
    answer.postMessage({ result: samples }, [samples.buffer]);
  } catch (/** @type {any} */ error) {
    answer.postMessage({ error: String(error?.message ?? error) });
  }
}
