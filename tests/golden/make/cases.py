"""The table of goldens: cases.json has a row for every random model, the rest stands here."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tests.golden.make import (
    chat_templates,
    dequantize,
    minilm,
    pretokenizers,
    quality,
    random_models,
    tokenizers,
    toy_vocabularies,
    wisp_mini,
)
from tests.golden.make.adapters import adapter_cases
from tests.golden.make.diffusion import record_diffusion
from tests.golden.make.encoder_decoder import record_answers
from tests.golden.make.frame_pairs import write_pairs
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import Library, library
from tests.golden.make.media_cases import media_cases
from tests.golden.make.media_sizes import write_sizes
from tests.golden.make.presets import PRESETS
from tests.golden.make.record import record_embeddings, record_logits, save
from tests.golden.make.tokenizer_texts import PLAMO_TEXTS

GOLDEN = Path(__file__).parents[1]


class Golden(Protocol):
    """Something checked in that can be made again."""

    @property
    def name(self) -> str: ...

    def files(self) -> list[Path]:
        """Its files below tests/golden."""

    def matches(self, word: str) -> bool:
        """Does a word of the command line name it?"""

    def make(self, folder: Path, library: Library) -> None:
        """Write its files below `folder`."""


@dataclass(frozen=True)
class ModelCase:
    """A random model and what is recorded of it."""

    folder: str
    name: str
    preset: str
    type: str
    seed: int
    n: int = 24  # tokens of the prompt
    n_gen: int = 16  # tokens of the greedy continuation
    long: int = 0  # tokens of the long prompt
    n_ctx: int = 256
    poolings: Sequence[str] = ()  # of an embedding model
    set: dict[str, Any] = field(default_factory=dict)  # settings other than the preset's
    layout: dict[str, Any] = field(default_factory=dict)

    def path(self) -> Path:
        """The model's file, of a split model the first."""
        first = sorted((GOLDEN / self.folder).glob(f"{self.name}-00001-of-*.gguf"))
        return (first[0] if first else GOLDEN / self.folder / f"{self.name}.gguf").relative_to(GOLDEN)

    def files(self) -> list[Path]:
        shards = sorted((GOLDEN / self.folder).glob(f"{self.name}-0*-of-*.gguf"))
        models = [shard.relative_to(GOLDEN) for shard in shards] or [self.path()]
        return [*models, *(Path(self.folder, self.name + end) for end in (".npz", ".json"))]

    def matches(self, word: str) -> bool:
        return word in (self.name, self.folder, self.preset, PRESETS[self.preset]["arch"])

    def make(self, folder: Path, library: Library) -> None:
        target = folder / self.folder
        target.mkdir(parents=True, exist_ok=True)
        path = target / f"{self.name}.gguf"
        used = random_models.write(path, self.preset, self.type, self.seed, Layout(**self.layout), library, **self.set)
        path = min(target.glob(f"{self.name}-00001-of-*.gguf"), default=path)
        if PRESETS[self.preset].get("masked"):
            arrays, about = record_diffusion(library, path, self.n, self.seed, self.n_ctx)
        elif PRESETS[self.preset]["arch"] == "t5":
            arrays, about = record_answers(library, path, self.n, self.n_gen, self.seed, self.long, self.n_ctx)
        elif self.poolings:
            arrays, about = record_embeddings(library, path, self.n, self.seed, self.n_ctx, self.poolings)
        else:
            arrays, about = record_logits(library, path, self.n, self.n_gen, self.seed, self.long, self.n_ctx)
        about |= {key: value for key, value in asdict(self).items() if key in ("name", "preset", "type", "seed")}
        about["config"] = {key: value for key, value in used.items() if value is not None}
        save(target / self.name, arrays, about)


class Maker(Protocol):
    """Writes a file."""

    def __call__(self, out: Path, library: Library) -> None: ...


@dataclass(frozen=True)
class FileCase:
    """One file that is no model's."""

    name: str  # its path below tests/golden
    write: Maker

    def files(self) -> list[Path]:
        return [Path(self.name)]

    def matches(self, word: str) -> bool:
        path = Path(self.name)
        return word in (self.name, path.stem, *path.parts[:-1])

    def make(self, folder: Path, library: Library) -> None:
        out = folder / self.name
        out.parent.mkdir(parents=True, exist_ok=True)
        self.write(out, library)


@dataclass(frozen=True)
class ToyVocabCase:
    """A tiny vocabulary, and what llama.cpp does with it."""

    model: str  # tokenizer.ggml.model

    @property
    def name(self) -> str:
        return f"vocab/{self.model}.json"

    def files(self) -> list[Path]:
        return [Path("vocab", f"toy-{self.model}.gguf"), Path(self.name)]

    def matches(self, word: str) -> bool:
        return word in (self.name, self.model, "vocab")

    def make(self, folder: Path, library: Library) -> None:
        vocab, out = (folder / path for path in self.files())
        out.parent.mkdir(parents=True, exist_ok=True)
        file = GgufFile("llama", seed=1)
        for key, value in (("context_length", 64), ("embedding_length", 32), ("block_count", 1)):
            file.add(f"%s.{key}", value)
        for key, value in (("feed_forward_length", 32), ("attention.head_count", 1)):
            file.add(f"%s.{key}", value)
        file.add("%s.attention.layer_norm_rms_epsilon", 1e-5)
        (toy_vocabularies.rwkv if self.model == "rwkv" else toy_vocabularies.plamo)(file, self.model)
        file.write(vocab, "F16", Layout(), library)
        tokenizers.make(vocab, out, library, [] if self.model == "rwkv" else PLAMO_TEXTS)


def make_chat(name: str, out: Path, library: Library) -> None:
    chat_templates.make(GOLDEN / name, out)


def make_vocab(name: str, out: Path, library: Library) -> None:
    vocab = GOLDEN / "vocab" / f"ggml-vocab-{Path(name).stem}.gguf"
    tokenizers.make(vocab, out, library)


def make_minilm(out: Path, library: Library) -> None:
    minilm.make(GOLDEN / "minilm.json", out)


def make_wisp_mini(out: Path, library: Library) -> None:
    wisp_mini.make(GOLDEN / "wisp-mini-chat.json", out, library)


CHATS = [f"chat/{name}.json" for name in ("gemma-2", "llama-3.2", "phi-3.5", "qwen3", "smollm3")]
VOCABS = [f"vocab/{name}.json" for name in ("bert-bge", "llama-bpe", "llama-spm", "qwen2")]
TOY_VOCABS = ("plamo2", "plamo3", "rwkv")
FETCHED = [Path("vocab", f"ggml-vocab-{Path(name).stem}.gguf{end}") for name in VOCABS for end in ("", ".inp", ".out")]


def model_cases() -> list[ModelCase]:
    rows = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
    return [ModelCase(**row) for row in rows]


def all_cases() -> list[Golden]:
    """Every golden that can be made again."""
    return [
        *model_cases(),
        *adapter_cases(),
        *media_cases(),
        *(FileCase(name, partial(make_chat, name)) for name in CHATS),
        *(FileCase(name, partial(make_vocab, name)) for name in VOCABS),
        *map(ToyVocabCase, TOY_VOCABS),
        FileCase("vocab/pretokenizers.json", pretokenizers.make),
        FileCase("vision/media/more_sizes.json", write_sizes),
        FileCase("video/pairs.json", write_pairs),
        FileCase("dequant.npz", dequantize.make),
        FileCase("wisp-mini-chat.json", make_wisp_mini),
        FileCase("minilm.json", make_minilm),
        FileCase("quality.json", quality.make),
    ]


def make_in_process(golden: Golden, folder: Path, package: str | None) -> None:
    """Make a golden with the llama.cpp of `package`; what a worker process runs."""
    golden.make(folder, library(package))
