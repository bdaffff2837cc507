"""Record tests/golden/video/colours.webm: a second each of red, blue and green, as a browser records a canvas.

Such a file does not say how long it is. `.venv/bin/python -m tests.golden.make.video`
"""

import base64

from playwright.sync_api import sync_playwright

from tests.support import browser as browsers
from tools.goldens import GOLDEN

RECORD = """async () => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 96, height: 64 });
  const context = canvas.getContext("2d"), parts = [];
  const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: "video/webm;codecs=vp8" });
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const begun = performance.now();
  recorder.start();
  for (let s = 0; s < 3; s = (performance.now() - begun) / 1000) {
    context.fillStyle = ["#f00", "#00f", "#0a0"][Math.floor(s)];
    context.fillRect(0, 0, 96, 64);
    context.fillStyle = "#fff"; // without a change, no picture is recorded
    context.fillRect((s * 40) % 80, 56, 4, 4);
    await new Promise((next) => setTimeout(next, 30));
  }
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.stop();
  await stopped;
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  return btoa(String.fromCharCode(...bytes));
}"""

if __name__ == "__main__":
    with sync_playwright() as playwright:
        page = browsers.launch(playwright, None).new_page()
        (GOLDEN / "video").mkdir(exist_ok=True)
        (GOLDEN / "video" / "colours.webm").write_bytes(base64.b64decode(page.evaluate(RECORD)))
