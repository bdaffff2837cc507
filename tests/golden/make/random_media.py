"""Random prompts with pictures and sounds of many sizes, from one seed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.drawn_pictures import drawn

MARKER = "<__media__>"
TEXTS = ("", "", " ", "\n", "Look: ", " and ", "\nwhat is it?", "the hat\n\n", " in the hat?", "\n\n", "é ")
RATE = 16000
MOST_AREA = 50_000  # pixels of a picture, but of one in twenty
LARGE = 1_200_000


@dataclass(frozen=True)
class Drawn:
    """A picture of a size. `style`: drawn, grey, or of one colour."""

    width: int
    height: int
    style: str

    def pixels(self) -> np.ndarray:
        """uint8 (height, width, 3)."""
        pixels = drawn(self.width, self.height)
        if self.style == "grey":
            return np.ascontiguousarray(np.repeat(pixels[..., :1], 3, 2))
        return np.full_like(pixels, 200) if self.style == "plain" else pixels

    def __str__(self) -> str:
        return f"{self.width}x{self.height} {self.style}"


@dataclass(frozen=True)
class Heard:
    """A clip of some samples. `style`: noise, a tone, silence, or far too loud."""

    count: int
    style: str

    def samples(self) -> np.ndarray:
        """float32 samples at 16 kHz."""
        random, at = np.random.default_rng(self.count), np.arange(self.count) / RATE
        if self.style == "silent":
            return np.zeros(self.count, np.float32)
        tone = np.sin(2 * np.pi * (220 + 300 * np.sin(at)) * at)
        noise = random.standard_normal(self.count)
        loud = {"noise": (0.05, 0.1), "tone": (0.4, 0.0), "quiet": (1e-3, 1e-4), "loud": (3.0, 0.5)}[self.style]
        return (loud[0] * tone + loud[1] * noise).astype(np.float32)

    def __str__(self) -> str:
        return f"{self.count} samples {self.style}"


@dataclass(frozen=True)
class RandomPrompt:
    """Texts, and a medium between each two of them."""

    texts: tuple[str, ...]
    media: tuple[Drawn | Heard, ...]

    @classmethod
    def of(cls, random: np.random.Generator, keys: dict[str, Any]) -> "RandomPrompt":
        """A prompt for a projector with these keys."""
        makers = [make for side, make in (("vision", picture), ("audio", clip)) if keys.get(f"clip.has_{side}_encoder")]
        count = int(random.choice([1, 1, 1, 2, 2, 3]))
        media = tuple(makers[random.integers(len(makers))](random) for _ in range(count))
        return cls(tuple(str(random.choice(TEXTS)) for _ in range(count + 1)), media)

    @property
    def prompt(self) -> str:
        """The text with markers."""
        return MARKER.join(self.texts)

    def simpler(self) -> "list[RandomPrompt]":
        """The prompt without one of its media."""
        if len(self.media) == 1:
            return []
        return [
            RandomPrompt(self.texts[:i] + self.texts[i + 1 :], self.media[:i] + self.media[i + 1 :])
            for i in range(len(self.media))
        ]

    def __str__(self) -> str:
        return f"{self.prompt!r} {', '.join(map(str, self.media))}"


def picture(random: np.random.Generator) -> Drawn:
    """Of any shape, from one pixel to a photo."""
    style = str(random.choice(["drawn", "drawn", "drawn", "grey", "plain"]))
    if random.random() < 0.05:
        area, ratio = random.uniform(MOST_AREA, LARGE), np.exp(random.normal(0, 0.5))
        return Drawn(int(np.sqrt(area * ratio)), int(np.sqrt(area / ratio)), style)
    width = int(np.exp(random.uniform(0, np.log(700))))
    height = int(np.exp(random.uniform(0, np.log(max(1, min(700, MOST_AREA // width))))))
    return Drawn(max(1, width), max(1, height), style)


def clip(random: np.random.Generator) -> Heard:
    """From one sample to half a minute."""
    style = str(random.choice(["noise", "noise", "tone", "quiet", "silent", "loud"]))
    if random.random() < 0.15:
        return Heard(int(random.integers(1, 1200)), style)
    return Heard(int(np.exp(random.uniform(np.log(400), np.log((35 if random.random() < 0.2 else 9) * RATE)))), style)
