/** Records sound with the microphone: a bar in place of the message field, with a level meter and the time. */
import { t } from "../../language/phrase.js";
import { wavOf } from "../../sdk/wav.js";
import { byId } from "../dom.js";
import { playingTime } from "../format.js";
import { announce, notify } from "../notices.js";
import { RATE, samplesOf, wave } from "./wave.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

const LONGEST_MS = 10 * 60_000;

/** @param {(medium: Medium) => void} recorded */
export function startRecorder(recorded) {
  const bar = byId("recorder");
  const level = /** @type {HTMLMeterElement} */ (byId("recorder-level"));
  const time = byId("recorder-time");
  /** @type {{ end: (keep: boolean) => void } | null} */
  let recording = null;
  let asking = false; // the browser asks the user for the microphone
  let ending = Promise.resolve(); // the last recording is being ended

  byId("recorder-stop").onclick = () => recording?.end(true);
  byId("recorder-cancel").onclick = () => recording?.end(false);

  async function record() {
    if (asking || recording) return; // a second recording would leave the microphone of the first one on
    /** @type {MediaStream} */
    let stream;
    asking = true;
    await ending; // else it would hide the bar of this one
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (error) {
      return notify({ key: "microphone", text: t("No microphone can be used."), more: `${error}`, kind: "error" });
    } finally {
      asking = false;
    }
    const recorder = new MediaRecorder(stream);
    /** @type {Blob[]} */
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const stopped = new Promise((resolve) => (recorder.onstop = resolve)); // by itself if the microphone is unplugged
    recorder.start();
    const meter = startMeter(stream, (loudness, ms) => {
      level.value = loudness;
      time.textContent = playingTime(ms / 1000);
      if (ms > LONGEST_MS) recording?.end(true);
    });
    bar.hidden = false;
    document.body.classList.add("recording");
    announce(t("Recording"));
    byId("recorder-stop").focus();
    const keep = await new Promise((resolve) => {
      recording = { end: resolve };
      void stopped.then(() => resolve(true));
    });
    recording = null;
    const ended = Promise.withResolvers();
    ending = ended.promise;
    try {
      meter();
      if (recorder.state !== "inactive") recorder.stop();
      await stopped;
      for (const track of stream.getTracks()) track.stop();
      bar.hidden = true;
      document.body.classList.remove("recording");
      byId("prompt").focus();
    } finally {
      ended.resolve(undefined);
    }
    if (!keep) return;
    try {
      const samples = await samplesOf(new Blob(parts, { type: recorder.mimeType }));
      recorded({ kind: "audio", name: `${t("Recording")}.wav`, blob: wavOf(samples, RATE), ...wave(samples) });
    } catch (error) {
      notify({ key: "microphone", text: t("The recording is empty."), more: `${error}`, kind: "error" });
    }
  }

  return { record };
}

/**
 * Measures a microphone in every frame.
 * @param {MediaStream} stream @param {(loudness: number, ms: number) => void} measured 0 to 1, and the time since the start
 * @returns {() => void} ends it
 */
function startMeter(stream, measured) {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const begun = performance.now();
  let frame = 0;
  const measure = () => {
    analyser.getFloatTimeDomainData(samples);
    const loudness = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
    measured(Math.min(1, 3 * loudness), performance.now() - begun);
    frame = requestAnimationFrame(measure);
  };
  measure();
  return () => {
    cancelAnimationFrame(frame);
    context.close();
  };
}
