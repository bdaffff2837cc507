"""Prompts with pictures: the goldens' embeddings in place of tokens, and what llama.cpp computes after them."""

import json
from dataclasses import dataclass

import numpy as np

from py_engine.generate.media import Media, media_ids
from tools.goldens import GOLDEN

VISION = GOLDEN / "vision"
# (golden, case): every way in which text models read pictures
CASES = [
    ("mlp", "pair"), ("gemma3", "square"), ("gemma3", "pair"), ("gemma4", "half"), ("qwen2vl", "wide"),
    ("qwen2vl", "pair"), ("qwen3vl", "wide"), ("qwen3vl", "pair"), ("qwen3vl", "alpha"), ("pixtral", "alpha"),
    ("glm4v", "pair"), ("paddleocr", "pair"), ("hunyuanvl", "wide"), ("hunyuanvl", "pair"), ("gemma4u", "half"),
    ("granite_speech", "half"), ("gemma4.layers", "half"), ("granite4_vision", "pair"),
    ("cogvlm", "square"), ("cogvlm", "pair"), ("kimik25.mrope", "wide"), ("kimik25.mrope", "pair"),
    ("kimik25.gemma", "wide"), ("kimik25.gemma", "pair"), ("gemma3.llama", "pair"), ("llama4.mrope", "large"),
]  # fmt: skip


@dataclass
class Case:
    """A golden's prompt, its media with llama.cpp's embeddings, and what follows."""

    golden: str
    text: str  # the file of the text model
    ids: list[int]
    media: list[Media]
    forced: list[int]
    logits: np.ndarray
    greedy: list[int]
    margin: list[float]
    tail: int

    @property
    def width(self) -> int:
        return int(np.asarray(self.media[0].rows).shape[-1])

    @property
    def whole(self) -> bool:
        """Whether a token of a picture sees all of it."""
        return any(one.whole for one in self.media)


def case(golden: str, name: str) -> Case:
    about, arrays = json.loads((VISION / f"{golden}.json").read_text()), np.load(VISION / f"{golden}.npz")
    found = next(c for c in about["cases"] if c["id"] == name)
    ids: list[int] = []
    media: list[Media] = []
    for i, chunk in enumerate(found["chunks"]):
        if chunk["kind"] == "text":
            ids += chunk["ids"]
            continue
        own = media_ids(f"{golden} {name} {i}", chunk["n_tokens"])
        number = len(media) if about["projector"] == "hunyuanvl" else None
        places = arrays.get(f"{name}/{i}/pos")  # time, row, column
        in_text = places is None or (number is None and places[-1, 0] > 0)  # tiles are on all axes at once
        grid = None if in_text else (chunk["nx"], chunk["ny"])
        media.append(Media(own, arrays[f"{name}/{i}/embd"], grid, chunk["non_causal"], number))
        ids += own
    forced, greedy = (arrays[f"{name}/{what}"].tolist() for what in ("forced", "greedy"))
    logits = arrays[f"{name}/logits"]
    return Case(
        golden, about["text_model"], ids, media, forced, logits, greedy, found["greedy_margin"], found["n_tail"]
    )
