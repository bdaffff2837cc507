/** Decodes sound for the engine: only pages have an audio context. The browser decodes in a thread of its own. */

const RATE = 16_000; // samples a second

/** @param {{ bytes: Uint8Array<ArrayBuffer>, answer: MessagePort }} message gets {samples}, mono at 16 kHz, or {error} */
export async function decodeSound({ bytes, answer }) {
  try {
    const buffer = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes.buffer);
    const samples = new Float32Array(buffer.length);
    for (let c = 0; c < buffer.numberOfChannels; c++) {
      const channel = buffer.getChannelData(c);
      for (let i = 0; i < samples.length; i++) samples[i] += channel[i] / buffer.numberOfChannels;
    }
    answer.postMessage({ samples }, [samples.buffer]);
  } catch (/** @type {any} */ error) {
    answer.postMessage({ error: String(error?.message ?? error) });
  }
}
