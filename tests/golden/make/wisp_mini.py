"""wisp-mini-chat.json: prompts that Wisp Mini's template renders, and llama.cpp's greedy answers to them.

The conversations are read from the checked-in golden; prompts, ids and answers are made again from the GGUFs in
static/models, through a float16 cache, llama.cpp's default.
"""

import json
from pathlib import Path
from typing import Any

import gguf

from tests.golden.make.chat_templates import NOW, environment
from tests.golden.make.llama_cpp import GGML_F16, Model
from tests.golden.make.llama_cpp_api import Library
from tools.paths import ROOT

FILES = {kind: ROOT / "static" / "models" / f"wisp-mini-{kind}.gguf" for kind in ("q8_0", "q4_0")}
N_CTX = 2048


def answer(model: Model, prompt: list[int], end: int, most: int) -> dict[str, Any]:
    """The greedy continuation up to <|im_end|> or `most` tokens."""
    model.clear_cache()
    row = model.logits(prompt)[-1]
    ids: list[int] = []
    while int(row.argmax()) != end and len(ids) < most:
        ids.append(int(row.argmax()))
        row = model.logits(ids[-1:], len(prompt) + len(ids) - 1)[0]
    text = model.decode(ids).decode(errors="replace")
    return {"tokens": ids, "text": text, "finish": "length" if len(ids) == most else "stop"}


def make(golden: Path, out: Path, library: Library) -> None:
    old = json.loads(golden.read_text(encoding="utf-8"))
    models = {kind: Model(library, path, N_CTX, cache=GGML_F16) for kind, path in FILES.items()}
    fields = gguf.GGUFReader(FILES["q8_0"]).fields
    template = environment(NOW).from_string(fields["tokenizer.chat_template"].contents())
    end = fields["tokenizer.ggml.eos_token_id"].contents()
    chats = []
    for chat in old["chats"]:
        prompt = template.render(messages=chat["messages"], tools=chat["tools"], add_generation_prompt=True)
        ids = models["q8_0"].encode(prompt, parse_special=True)
        answers = {kind: answer(model, ids, end, old["max_new_tokens"]) for kind, model in models.items()}
        inputs = {key: chat[key] for key in ("id", "messages", "tools")}
        chats.append({**inputs, "prompt": prompt, "prompt_tokens": ids, "answers": answers})
    out.write_text(json.dumps({**old, "chats": chats}, ensure_ascii=False, indent=1), encoding="utf-8")
