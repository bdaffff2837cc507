"""The embedded model's template and tokenizer against llama.cpp's prompts and answers."""

import json
from pathlib import Path

from app.models.loading import vocabulary
from py_engine.files.gguf_header import parse
from tests.support.gguf_bytes import MINI

GOLDEN = Path(__file__).parents[1] / "golden" / "wisp-mini-chat.json"


def test_prompts_and_answers() -> None:
    data = MINI.read_bytes()
    model = vocabulary("wisp-mini", parse(data, len(data)), {})
    assert not model.notices
    chats = json.loads(GOLDEN.read_text())["chats"]
    assert len(chats) > 40
    for chat in chats:
        prompt = model.template.render(model.template.prepare(chat["messages"]), tools=chat["tools"])
        assert prompt == chat["prompt"]
        assert model.tokenizer.encode_prompt(prompt) == chat["prompt_tokens"]
        for answer in chat["answers"].values():
            stream = model.tokenizer.stream(strip_space=True)
            assert "".join(map(stream.push, answer["tokens"])) + stream.finish() == answer["text"]
