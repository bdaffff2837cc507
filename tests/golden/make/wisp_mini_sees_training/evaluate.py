"""Ask Wisp Mini Sees about drawings that it was not trained on, in Wisp itself: exact answers, greedy, on the CPU.

    PYTHONPATH=../../../.. python evaluate.py 300

dist/ must be built, with the model in its catalog. Prints every wrong answer, then the score of each kind.
"""

import base64
import io
import json
import sys
from collections import defaultdict
from random import Random

import pictures
from playwright.sync_api import sync_playwright

from tests.support import browser
from tools.paths import DIST, ROOT
from tools.serve import Server

SEED = 987654
SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create();
  await engine.load({ model: "wisp-mini-sees-q4_0", backend: "cpu" });
}"""
ASK = """async ([question, url]) => {
  const content = [{ type: "image_url", image_url: { url } }, { type: "text", text: question }];
  const answer = await engine.chat.completions.create({ temperature: 0, max_tokens: 60, messages: [{ role: "user", content }] });
  return answer.choices[0].message.content;
}"""


def main() -> None:
    rng, right = Random(SEED), defaultdict(list)
    server = Server(DIST, 0, mounts={"tests/": ROOT / "tests" / "support" / "pages"}).start()
    with sync_playwright() as playwright:
        page = browser.launch(playwright, None).new_context().new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{server.url}tests/blank.html")
        page.evaluate(SET_UP)
        for _ in range(int(sys.argv[1])):
            kind, drawing = pictures.drawing(rng)
            data = io.BytesIO()
            drawing.image.save(data, "PNG")
            url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
            question, wanted = drawing.turns[0]
            said = page.evaluate(ASK, [question, url])
            right[kind].append(said.strip() == wanted)
            if said.strip() != wanted:
                print(f"{kind}: {question} {wanted} | {said}")
    scores = {kind: f"{sum(all_of)} of {len(all_of)}" for kind, all_of in right.items()}
    print(json.dumps(scores, indent=1), sum(map(sum, right.values())), "of", sum(map(len, right.values())))
    server.shutdown()


if __name__ == "__main__":
    main()
