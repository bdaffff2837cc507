/** Sound as a wave: how long it is, how loud in each part, and a drawing. */

/** @typedef {{ seconds: number, peaks: number[] }} Wave `peaks`: the loudest sample of each part, 0 to 1 */

export const RATE = 16_000; // samples a second: what models take
const PARTS = 48;

/** Decodes a sound to mono at 16 kHz, outside of the page's thread. @param {Blob} blob */
export async function samplesOf(blob) {
  const buffer = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await blob.arrayBuffer());
  const samples = new Float32Array(buffer.length);
  for (let c = 0; c < buffer.numberOfChannels; c++) {
    const channel = buffer.getChannelData(c);
    for (let i = 0; i < samples.length; i++) samples[i] += channel[i] / buffer.numberOfChannels;
  }
  return samples;
}

/** @param {Blob} blob @returns {Promise<Wave>} */
export const waveOf = async (blob) => wave(await samplesOf(blob));

/** @param {Float32Array} samples @returns {Wave} */
export function wave(samples) {
  const peaks = Array.from({ length: PARTS }, (_, part) => {
    const end = Math.ceil(((part + 1) * samples.length) / PARTS);
    let peak = 0;
    for (let i = Math.floor((part * samples.length) / PARTS); i < end; i++) peak = Math.max(peak, Math.abs(samples[i]));
    return Math.round(Math.min(1, peak) * 100) / 100;
  });
  return { seconds: samples.length / RATE, peaks };
}

/** A drawing of a wave, as wide as its box. @param {number[]} peaks @returns {SVGSVGElement} */
export function drawing(peaks) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", `0 0 ${2 * peaks.length} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "wave");
  svg.setAttribute("aria-hidden", "true");
  const lines = peaks.map((peak, i) => {
    const half = Math.max(0.7, 19 * peak);
    return `M${2 * i + 1} ${20 - half}V${20 + half}`;
  });
  path.setAttribute("d", lines.join(""));
  svg.append(path);
  return svg;
}
