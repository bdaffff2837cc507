"""The goldens of pictures and sound: media_cases.json has a row for every projector."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.golden.make import random_models, random_projectors
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.record import save
from tests.golden.make.record_media import Prompt, record_media

FOLDER = Path("vision")
TEXTS = {
    "pictures": "llama-tied",
    "pictures.mrope": "qwen2vl",
    "pictures.gemma": "gemma",
}  # text models that the projectors share, and their presets
SMALL = {"n_embd": 64, "n_head": 4, "n_kv": 2, "head_dim": 16, "n_ff": 96, "vocab": 336, "ctx": 4096, "tied": True}
TEXT_SEED = 400

PICTURES = (
    Prompt("square", "Look: <__media__>\nwhat is it?", ("square.png",)),
    Prompt("wide", "Look: <__media__>\nwhat is it?", ("wide.png",)),
    Prompt("pair", "<__media__> and <__media__> in the hat?", ("tall.png", "dot.png")),
    Prompt("large", "the hat\n\n<__media__> is what?", ("large.png",)),
    Prompt("alpha", "<__media__> and <__media__> in the hat?", ("alpha.png", "grey.png")),
)
BOTH = Prompt("both", "<__media__> and <__media__> in the hat?", ("wide.png", "half.wav"))
MORE = {
    "long": Prompt("long", "Listen: <__media__>\nwhat is it?", ("long.wav",)),
    "huge": Prompt("huge", "<__media__> is what?", ("huge.png",)),
}
SOUND = (
    Prompt("half", "Listen: <__media__>\nwhat is it?", ("half.wav",)),
    Prompt("three", "Listen: <__media__>\nwhat is it?", ("three.wav",)),
    Prompt("clips", "<__media__> and <__media__> in the hat?", ("stereo.wav", "half.wav")),
)


def text_model(name: str) -> GgufFile:
    """A text model whose vocabulary has the tokens around pictures and sound."""
    preset = TEXTS[name]
    sections = {"sections": [2, 3, 3, 0]} if preset == "qwen2vl" else {}
    return random_models.build(preset, TEXT_SEED, **SMALL, **sections, tok="media")[0]


@dataclass(frozen=True)
class TextCase:
    """A text model that projectors share. What it computes, they record."""

    name: str

    def files(self) -> list[Path]:
        return [FOLDER / f"{self.name}.gguf"]

    def matches(self, word: str) -> bool:
        return word in (self.name, "vision")

    def make(self, folder: Path, library: Library) -> None:
        path = folder / self.files()[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        text_model(self.name).write(path, "F16", Layout(), library)


@dataclass(frozen=True)
class MediaCase:
    """A random projector, and what is recorded of it with a text model."""

    name: str
    kind: str
    text: str
    seed: int
    sound: bool = False  # the file has an encoder of sound, too
    more: tuple[str, ...] = ()  # ids of further prompts
    set: dict[str, Any] = field(default_factory=dict)  # settings other than the usual ones

    def files(self) -> list[Path]:
        return [FOLDER / (self.name + end) for end in (".mmproj.gguf", ".npz", ".json")]

    def matches(self, word: str) -> bool:
        return word in (self.name, self.kind, "vision")

    def projector(self) -> GgufFile:
        return random_projectors.build(self.kind, self.seed, **self.set)

    def make(self, folder: Path, library: Library) -> None:
        target = folder / FOLDER
        target.mkdir(parents=True, exist_ok=True)
        text, projector = text_model(self.text), self.projector()
        projector.write(target / f"{self.name}.mmproj.gguf", "F16", Layout(), library)
        prompts: tuple[Prompt, ...] = (PICTURES[0], *SOUND, BOTH) if self.sound else PICTURES
        prompts += tuple(MORE[id] for id in self.more)
        arrays, recorded = record_media(library, text, projector, prompts, self.seed)
        about: dict[str, Any] = {"name": self.name, "projector": self.kind, "text_model": f"{self.text}.gguf"}
        about |= {"mmproj": f"{self.name}.mmproj.gguf", "arch": text.architecture, "type": "F16", "seed": self.seed}
        save(target / self.name, arrays, about | {"set": asdict(self)["set"]} | recorded)


def media_cases() -> list[TextCase | MediaCase]:
    rows = json.loads((Path(__file__).parent / "media_cases.json").read_text(encoding="utf-8"))
    return [*map(TextCase, TEXTS), *(MediaCase(**row) for row in rows)]
