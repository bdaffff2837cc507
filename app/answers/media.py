"""The media of one request: fetched, prepared, and read into its prompt."""

import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.models.loaded import Loaded
from app.models.projector import LoadedProjector
from app.openai.media import MediaPart, Message, parts_of, with_markers
from py_engine.errors import WispError
from py_engine.generate.media import PromptMedia
from py_engine.media.encoders import Vision
from py_engine.media.prepared import Medium
from py_engine.media.projector import Projector

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass
class RequestMedia:
    """Prepared media and their markers. Without media, prompts are encoded as text."""

    model: Loaded
    media: list[Medium] = field(default_factory=list)
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))  # no text of a request has it

    @property
    def markers(self) -> list[str]:
        """The text that stands for each medium."""
        return [f"<__media_{self.nonce}_{i}__>" for i in range(len(self.media))]

    def encode(self, text: str) -> tuple[list[int], PromptMedia]:
        """The ids of a prompt, and its media. Not all markers need be in the text: turns may be left out."""
        if not self.media:
            return self.model.ended(self.model.tokenizer.encode_prompt(text)), PromptMedia()
        projector = projector_of(self.model, "messages")
        marker = f"<__media_{self.nonce}__>"
        each = re.compile(f"<__media_{self.nonce}_([0-9]+)__>")
        used = [self.media[int(number)] for number in each.findall(text)]
        prompt = projector.prompt(each.sub(marker, text), used, marker)
        return prompt.ids, PromptMedia(prompt.media, projector.encode)

    def without_markers(self, text: str) -> str:
        """A prompt's text without what stands for its media."""
        return re.sub(f"<__media_{self.nonce}_[0-9]+__>", "", text) if self.media else text


async def of_messages(model: Loaded, messages: list[Message], fetch: Fetch) -> tuple[RequestMedia, list[Message]]:
    """The media of a chat, and its messages with a marker for each. WispError for media that cannot be used."""
    found = await of_parts(model, parts_of(messages), fetch)
    return found, with_markers(messages, found.markers)


async def of_parts(model: Loaded, parts: list[MediaPart], fetch: Fetch) -> RequestMedia:
    """The media of parts, in their order."""
    media = RequestMedia(model)
    for part in parts:
        projector = projector_of(model, part.path)
        try:
            media.media.append(await projector.prepared(part.data or await fetch(part.address), part.second))
        except WispError as error:
            raise error.reworded(error.message, part.path) from None
    return media


def vision_of(model: Loaded, path: str) -> Vision:
    """What encodes pictures for the model. WispError no_projector, which names the field at `path`."""
    projector: Projector = projector_of(model, path).projector
    try:
        return projector.need_vision()
    except WispError as error:
        raise error.reworded(error.message, path) from None


def check_hears(model: Loaded, path: str) -> None:
    """Raise WispError no_projector, which names the field at `path`, unless the model hears."""
    projector: Projector = projector_of(model, path).projector
    try:
        projector.need_audio()
    except WispError as error:
        raise error.reworded(error.message, path) from None


def projector_of(model: Loaded, path: str) -> LoadedProjector:
    """The model's projector. WispError no_projector, which names the field at `path`."""
    projector: LoadedProjector | None = model.projector
    if projector is None:
        raise WispError(
            f"{model.id} was loaded without a projector, so it reads text only. Load it with the projector that was "
            "published with it: engine.load({ model, projector }).",
            "no_projector",
            param=path,
        )
    return projector
