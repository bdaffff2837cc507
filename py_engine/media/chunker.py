"""Makes the chunks of a prompt with media, with the texts and tokens that each type of projector has around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from py_engine.errors import WispError
from py_engine.media.chunks import Chunk, MediaChunk, TextChunk
from py_engine.media.kinds import IN_ROWS, QWEN_VL, SAM_TILES
from py_engine.media.prepared import Medium, Picture, Piece, Sound
from py_engine.media.projector import Projector
from py_engine.media.sizes import Size


class Tokenizer(Protocol):
    """What is needed of py_engine.text.tokenizer.Tokenizer."""

    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Encode a text."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""

    def __len__(self) -> int:
        """The size of the vocabulary."""


@dataclass(frozen=True)
class _Around:
    """Texts around a medium and its parts. A list has texts of single tokens, which are looked up and not tokenized."""

    begin: str = ""
    end: str = ""
    tile: str = ""  # before each tile; {row} and {column} count from 1
    before_tiles: tuple[str, ...] = ()
    before_tile: tuple[str, ...] = ()
    after_tile: tuple[str, ...] = ()
    after_row: tuple[str, ...] = ()  # but not after the last
    after_tiles: tuple[str, ...] = ()
    before_overview: tuple[str, ...] = ()
    after_overview: tuple[str, ...] = ()


_FAKE = "<fake_token_around_image>"
_MINICPM = _Around(
    before_tile=("<slice>",),
    after_tile=("</slice>",),
    after_row=("\n",),
    before_overview=("<image>",),
    after_overview=("</image>",),
)
_AROUND = {
    **dict.fromkeys((*QWEN_VL, "youtuvl", "ling3vl", "mimovl"), _Around("<|vision_start|>", "<|vision_end|>")),
    **dict.fromkeys(("glm4v", "glm5v"), _Around("<|begin_of_image|>", "<|end_of_image|>")),
    "kimik25": _Around("<|media_begin|>", "<|media_end|>"),
    "exaone4_5": _Around("<vision>", "</vision>"),
    **dict.fromkeys(("llama4", "muse-glimmer"), _Around("<|image_start|>", "<|image_end|>")),
    "minimax_m3": _Around("]<]start of image[>[", "]<]end of image[>["),
    "paddleocr": _Around("<|IMAGE_START|>", "<|IMAGE_END|>"),
    **dict.fromkeys(("dots_ocr", "dots3note_v"), _Around("<|img|>", "<|endofimg|>")),
    "kimivl": _Around("<|media_start|>", "<|media_end|>"),
    "hunyuanvl": _Around("<｜hy_place▁holder▁no▁100｜>", "<｜hy_place▁holder▁no▁101｜>"),  # noqa: RUF001
    "musicflamingo": _Around("<sound>"),
    "yasa2": _Around("<image>", "</image>"),
    **dict.fromkeys((*SAM_TILES, "granite4_vision"), _Around(end="\n")),
    **dict.fromkeys(("gemma3", "gemma3nv"), _Around("<start_of_image>", "<end_of_image>")),
    **dict.fromkeys(("gemma4v", "gemma4uv"), _Around("<|image>", "<image|>")),
    "internvl": _Around("<img>", "</img>"),
    "cohere2v": _Around(
        "<|START_OF_IMG|>",
        "<|END_OF_IMG|>",
        after_tile=("<|IMG_LINE_BREAK|>",),
        after_overview=("<|IMG_LINE_BREAK|>",),
    ),
    "pixtral": _Around(end="[IMG_END]"),
    "lightonocr": _Around("<|im_start|>", "<|im_end|>"),
    "idefics3": _Around(
        tile=_FAKE + "<row_{row}_col_{column}>",
        after_row=("\n",),
        before_overview=("\n\n", _FAKE, "<global-img>"),
        after_overview=(_FAKE,),
    ),
    "lfm2": _Around(
        "<|image_start|>",
        "<|image_end|>",
        tile="<|img_row_{row}_col_{column}|>",
        before_overview=("<|img_thumbnail|>",),
    ),
    "step3vl": _Around(
        before_tile=("<patch_start>",),
        after_tile=("<patch_end>",),
        after_row=("<patch_newline>",),
        before_overview=("<im_start>",),
        after_overview=("<im_end>",),
    ),
    "resampler": _MINICPM,
    "minicpmv4_6": _MINICPM,
    "voxtral": _Around("[BEGIN_AUDIO]"),
    "qwen2a": _Around("<|audio_bos|>", "<|audio_eos|>"),
    "qwen3a": _Around("<|audio_start|>", "<|audio_end|>"),
    "mimo_audio": _Around("<|mimo_audio_start|>", "<|mimo_audio_end|>"),
    "dots3note_a": _Around("<|audio_comp_start|>", "<|audio_comp_end|>"),
    **dict.fromkeys(("gemma4a", "gemma4ua"), _Around("<|audio>", "<audio|>")),
}
# MiniCPM-V 2.5 has all tiles between two tokens.
_MINICPM_2_5 = _Around(
    before_tiles=("<slice>",),
    before_tile=("<image>",),
    after_tile=("</image>",),
    after_row=("\n",),
    after_tiles=("</slice>",),
    before_overview=("<image>",),
    after_overview=("</image>",),
)


class Chunker:
    """Makes the chunks of prompts for one text model with its projector."""

    def __init__(self, tokenizer: Tokenizer, projector: Projector, *, n_embd: int, mrope: bool) -> None:
        """`n_embd`: the text model's width; `mrope`: whether its positions have several dimensions."""
        self._tokenizer = tokenizer
        self._projector = projector
        self._n_embd = n_embd
        self._mrope = mrope
        self._single: dict[str, int | None] = {}
        self._pictures = 0  # of the prompt so far

    def chunks(self, prompt: str, media: Sequence[Medium], marker: str) -> list[Chunk]:
        """The chunks of a prompt, in which each medium has its marker."""
        texts = prompt.split(marker)
        if len(texts) != len(media) + 1:
            raise WispError(
                f"The prompt has {len(texts) - 1} media markers, and {len(media)} media were given.",
                "invalid_value",
                param="media",
            )
        made = _List()
        self._pictures = 0
        made.text(self._encode(texts[0]))
        for medium, text in zip(media, texts[1:], strict=True):
            if isinstance(medium, Picture):
                self._picture(made, medium)
            else:
                self._sound(made, medium)
            made.text(self._encode(text))
        return self._with_special(made.chunks)

    def _with_special(self, chunks: list[Chunk]) -> list[Chunk]:
        """Add BOS at the start, once, and EOS at the end, where the vocabulary says so."""
        tokenizer = self._tokenizer
        first = chunks[0] if chunks and isinstance(chunks[0], TextChunk) else None
        if tokenizer.add_bos and tokenizer.bos_id is not None and (first is None or first.ids[0] != tokenizer.bos_id):
            begin = TextChunk([tokenizer.bos_id, *(first.ids if first else [])])
            chunks = [begin, *(chunks[1:] if first else chunks)]
        if tokenizer.add_eos and tokenizer.eos_id is not None:
            made = _List(chunks)
            made.text([tokenizer.eos_id])
        return chunks

    def _encode(self, text: str) -> list[int]:
        """Each text between media is tokenized on its own: some vocabularies put a space before each."""
        return self._tokenizer.encode(text, parse_special=True) if text else []

    def _look_up(self, texts: tuple[str, ...]) -> list[int]:
        return [self._token(text) for text in texts]

    def _has(self, text: str) -> bool:
        """Whether the vocabulary has a token with that text."""
        return self._find(text) is not None

    def _find(self, text: str) -> int | None:
        """The first token with that text. It is searched for once: a vocabulary has 100,000 tokens and more."""
        if text not in self._single:
            ids, data = self._tokenizer.encode(text, parse_special=True), text.encode()
            everything = range(len(self._tokenizer)) if len(ids) != 1 else ids
            self._single[text] = next((id for id in everything if self._tokenizer.piece(id) == data), None)
        return self._single[text]

    def _token(self, text: str) -> int:
        """The first token with that text. WispError projector_mismatch if there is none."""
        found = self._find(text)
        if found is None:
            raise WispError(
                f"The model's vocabulary lacks the token {text!r}, which its projector needs: they belong to "
                "different models.",
                "projector_mismatch",
            )
        return found

    def _picture(self, made: _List, picture: Picture) -> None:
        vision = self._projector.need_vision()
        around = _AROUND.get(vision.type, _Around())
        if vision.type == "resampler" and vision.version == 2:
            around = _MINICPM_2_5
        if vision.type == "kimik25" and self._has(_AROUND["glm5v"].begin):  # GLM-5.2-V has Kimi-K2.5's encoder
            around = _AROUND["glm5v"]
        made.text(self._encode(around.begin))
        pieces = list(picture.pieces)
        if picture.tiles is None:
            made.chunks += [self._image(piece, self._mrope) for piece in pieces]
        else:
            overview = pieces.pop(0 if picture.overview_first else -1)
            if picture.overview_first:
                self._overview(made, around, overview)
            self._tiles(made, around, pieces, picture.tiles)
            if not picture.overview_first:
                self._overview(made, around, overview)
        made.text(self._encode(around.end))

    def _tiles(self, made: _List, around: _Around, tiles: list[Piece], grid: Size) -> None:
        if not tiles:
            return
        made.text(self._look_up(around.before_tiles))
        for i, tile in enumerate(tiles):
            row, column = divmod(i, grid[0])
            if column == 0 and row > 0:
                made.text(self._look_up(around.after_row))
            made.text(
                self._look_up(around.before_tile) + self._encode(around.tile.format(row=row + 1, column=column + 1))
            )
            made.chunks.append(self._image(tile, mrope=False))
            made.text(self._look_up(around.after_tile))
        made.text(self._look_up(around.after_tiles))

    def _overview(self, made: _List, around: _Around, overview: Piece) -> None:
        made.text(self._look_up(around.before_overview))
        made.chunks.append(self._image(overview, mrope=False))
        made.text(self._look_up(around.after_overview))

    def _image(self, piece: Piece, mrope: bool) -> MediaChunk:
        """A picture, or a part. As in llama.cpp, tiles are in a row with the text, also where positions have axes."""
        vision, number = self._projector.need_vision(), None
        grid = piece.grid if mrope and vision.type in IN_ROWS else (piece.n_tokens, 1)
        if mrope and vision.type == "hunyuanvl":
            number, self._pictures = self._pictures, self._pictures + 1
        whole = self._projector.reads_whole(self._n_embd)
        return MediaChunk("image", piece, self._projector, grid, whole, mrope, number)

    def _sound(self, made: _List, sound: Sound) -> None:
        audio = self._projector.need_audio()
        around = _AROUND.get(audio.type, _Around())
        made.text(self._encode(around.begin))
        for spectrum in sound.spectra:
            made.chunks.append(MediaChunk("audio", spectrum, self._projector, (spectrum.n_tokens, 1), False, False))
        made.text(self._encode(around.end))


class _List:
    """Chunks so far. Neighbouring texts become one chunk."""

    def __init__(self, chunks: list[Chunk] | None = None) -> None:
        self.chunks: list[Chunk] = [] if chunks is None else chunks

    def text(self, ids: list[int]) -> None:
        last = self.chunks[-1] if self.chunks else None
        if not ids:
            return
        if isinstance(last, TextChunk):
            self.chunks[-1] = TextChunk(last.ids + ids)
        else:
            self.chunks.append(TextChunk(ids))
