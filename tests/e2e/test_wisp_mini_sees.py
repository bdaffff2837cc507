"""The model of the catalog that sees: drawings that it was not trained on, through its card in the list of models."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser

from tests.support.browser import new_profile
from tools.serve import Server

PICTURES = Path(__file__).parents[1] / "golden" / "sees"
LEAST = 9  # of 11 answers; its score on many such drawings is in its model card
ASK = """async (probes) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  await engine.load({ model: "wisp-mini-sees-q4_0", backend: "cpu" });
  const answers = [];
  for (const { url, questions } of probes) {
    const messages = [];
    for (const text of questions) {
      const picture = messages.length ? [] : [{ type: "image_url", image_url: { url } }];
      messages.push({ role: "user", content: [...picture, { type: "text", text }] });
      const { choices } = await engine.chat.completions.create({ messages, temperature: 0, max_tokens: 60 });
      messages.push(choices[0].message);
      answers.push(choices[0].message.content);
    }
  }
  return answers;
}"""


def test_answers_about_drawings(chromium: Callable[[str | None], Browser], server: Server) -> None:
    probes = json.loads((PICTURES / "probes.json").read_text(encoding="utf-8"))
    asked = [
        {
            "url": "data:image/png;base64," + base64.b64encode((PICTURES / probe["picture"]).read_bytes()).decode(),
            "questions": [question for question, _ in probe["turns"]],
        }
        for probe in probes
    ]
    context = new_profile(chromium(None))
    page = context.new_page()
    page.set_default_timeout(200_000)
    page.goto(f"{server.url}tests/blank.html")
    answers = page.evaluate(ASK, asked)
    context.close()
    wanted = [answer for probe in probes for _, answer in probe["turns"]]
    assert sum(a == b for a, b in zip(answers, wanted, strict=True)) >= LEAST, list(zip(answers, wanted, strict=True))
