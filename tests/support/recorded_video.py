"""A video that a page records of a canvas and a tone."""

# Records a second of a picture that changes, with a tone; leaves it as `recorded`, a Blob. The recorder places the
# pictures by the page's clock: a tone with another one's times would be far from them.
RECORD_WITH_SOUND = """const canvas = Object.assign(document.createElement("canvas"), { width: 96, height: 64 });
  const context = canvas.getContext("2d"), tone = new MediaStreamTrackGenerator({ kind: "audio" });
  const writer = tone.writable.getWriter(), pieces = [];
  const stream = new MediaStream([...canvas.captureStream(25).getTracks(), tone]);
  const recorder = new MediaRecorder(stream, { mimeType: "video/webm;codecs=vp8,opus" });
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  recorder.start();
  const begun = Math.round(1000 * performance.now());
  for (let at = 0; at < 50; at++) {
    context.fillStyle = at % 2 ? "#f00" : "#00f";
    context.fillRect(0, 0, 96, 64);
    const data = Float32Array.from({ length: 960 }, (_, i) => 0.5 * Math.sin((at * 960 + i) * 0.06));
    const shape = { format: "f32", sampleRate: 48000, numberOfFrames: 960, numberOfChannels: 1 };
    writer.write(new AudioData({ ...shape, timestamp: begun + at * 20000, data })).catch(() => {});
    await new Promise((next) => setTimeout(next, 20));
  }
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.stop();
  await stopped;
  const recorded = new Blob(pieces);
  """
