"""Check the messages of a chat and the prompts of a completion. Messages keep OpenAI's shape."""

from dataclasses import dataclass

from app.openai.fields import Json, boolean, unsupported, whole, wrong_type, wrong_value
from app.openai.files import with_texts
from app.openai.media import TYPES as MEDIA_TYPES
from app.openai.media import MediaPart, from_base64, media_part
from app.openai.video import TYPES as VIDEO_TYPES
from py_engine.errors import WispError

MARKER = "<__media__>"  # of a medium in a completion's prompt, as in llama.cpp
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(frozen=True)
class PromptWithMedia:
    """The prompt of a completion: a text with MARKER for each of its media."""

    text: str
    media: list[MediaPart]


@dataclass(frozen=True)
class MixedPrompt:
    """The prompt of a completion: texts and token ids, one after the other, as in llama.cpp."""

    parts: tuple[str | int, ...]


@dataclass(frozen=True)
class Infill:
    """The prompt of a completion that fills a gap in a text.

    `files`: (name, text) of others, before it; None: not even the names of its repository and file. `prompt`: text
    between `prefix` and the gap. `truncate`: what the context does not hold is left out. `param`: for errors.
    """

    prefix: str
    suffix: str
    param: str
    prompt: str = ""
    files: tuple[tuple[str, str], ...] | None = None
    truncate: bool = False


CompletionPrompt = str | list[int] | MixedPrompt | Infill | PromptWithMedia


def messages(value: Json) -> list[dict[str, Json]]:
    """Check and return the messages, texts in place of files; there must be at least one."""
    if not isinstance(value, list):
        raise wrong_type("messages", "a list of messages", value)
    if not value:
        raise WispError("messages is empty: give at least one message.", "empty_messages", param="messages")
    for i, message in enumerate(value):
        _check_message(message, f"messages[{i}]")
    return [_with_refusals_as_text(with_texts(message, f"messages[{i}]")) for i, message in enumerate(value)]


def _with_refusals_as_text(message: dict[str, Json]) -> dict[str, Json]:
    """A checked message with texts in place of its refusals, which chat templates do not know."""
    content = message.get("content")
    if not isinstance(content, list) or all(part["type"] != "refusal" for part in content):
        return message
    parts = [{"type": "text", "text": part["refusal"]} if part["type"] == "refusal" else part for part in content]
    return {**message, "content": parts}


def split_final(conversation: list[dict[str, Json]]) -> tuple[list[dict[str, Json]], str]:
    """Split off the text of the last message, an answer that is to be continued."""
    *before, final = conversation
    content = final.get("content")
    if final["role"] != "assistant" or not isinstance(content, str) or not before:
        raise wrong_value(
            "continue_final_message needs a last message of the role assistant with a string as its content, and a "
            "message before it.",
            "continue_final_message",
        )
    return before, content


def _check_message(message: Json, path: str) -> None:
    if not isinstance(message, dict):
        raise wrong_type(path, "an object", message)
    role = message.get("role")
    if not isinstance(role, str):
        raise wrong_type(f"{path}.role", "a string", role)
    if role not in ROLES:
        raise wrong_value(f"{path}.role is {role!r}; it must be one of {', '.join(ROLES)}.", f"{path}.role")
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise wrong_type(f"{path}.tool_calls", "a list of objects", calls)
        for j, call in enumerate(calls):
            _check_call(call, f"{path}.tool_calls" if not isinstance(call, dict) else f"{path}.tool_calls[{j}]")
    content = message.get("content")
    if content is None and role == "assistant":
        return  # tool calls alone, or a refusal
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise wrong_type(f"{path}.content", "a string or a list of parts", content)
    for j, part in enumerate(content):
        _check_part(part, f"{path}.content[{j}]", role)


def _check_call(call: Json, path: str) -> None:
    if not isinstance(call, dict):
        raise wrong_type(path, "a list of objects", call)
    function = call.get("function")
    if not isinstance(function, dict):
        raise wrong_type(f"{path}.function", "an object", function)
    if not isinstance(function.get("name"), str):
        raise wrong_type(f"{path}.function.name", "a string", function.get("name"))
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise wrong_type(f"{path}.function.arguments", "a string", arguments)


def _check_part(part: Json, path: str, role: str) -> None:
    if not isinstance(part, dict):
        raise wrong_type(path, "an object", part)
    kind = part.get("type")
    if kind in (*MEDIA_TYPES, "file"):
        if role not in ("user", "tool"):
            raise wrong_value(f"{path} is of type {kind!r}, which a message of the role {role} cannot have.", path)
        if kind != "file":  # with_texts() checks those
            media_part(part, path)
        return
    if kind == "refusal" and role == "assistant":
        if not isinstance(part.get("refusal"), str):
            raise wrong_type(f"{path}.refusal", "a string", part.get("refusal"))
        return
    if kind in VIDEO_TYPES:
        what = "a video, which only messages of users and tools have, and only Wisp's pages decode"
        raise unsupported(f"{path} is {what}: send pictures of it, in parts of the type image_url.", path)
    if kind != "text":
        known = "'text', 'image_url', 'input_audio', 'input_video' or 'file'"
        raise wrong_value(f"{path}.type is {kind!r}; it must be {known}.", f"{path}.type")
    if not isinstance(part.get("text"), str):
        raise wrong_type(f"{path}.text", "a string", part.get("text"))
    boolean(part, "untrusted", param=f"{path}.untrusted")


def prompts(value: Json) -> list[CompletionPrompt]:
    """Check and return the prompts: a string, token ids, or a list of these. Of llama.cpp: a list of ids and texts that
    is one prompt, and a text with media.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [_with_media(value, "prompt")]
    if isinstance(value, list) and value:
        if all(isinstance(p, str | list | dict) for p in value):
            return [_prompt(p, value, f"prompt[{i}]") for i, p in enumerate(value)]
        return [_tokens(value, value)]
    if value == []:
        raise wrong_value("prompt is empty: give at least one.", "prompt")
    raise wrong_type("prompt", "a string, token ids, or a list of either", value)


def _prompt(value: Json, whole_prompt: Json, path: str) -> CompletionPrompt:
    if isinstance(value, dict):
        return _with_media(value, path)
    return value if isinstance(value, str) else _tokens(value, whole_prompt)


def _with_media(value: dict[str, Json], path: str) -> PromptWithMedia:
    text, data = value.get("prompt_string"), value.get("multimodal_data", [])
    if not isinstance(text, str):
        raise wrong_type(f"{path}.prompt_string", "a string", text)
    if not isinstance(data, list) or not all(isinstance(one, str) for one in data):
        raise wrong_type(f"{path}.multimodal_data", "a list of Base64 texts", data)
    if text.count(MARKER) != len(data):
        raise wrong_value(
            f"{path}.prompt_string has the marker {MARKER} {text.count(MARKER)} times, and multimodal_data has "
            f"{len(data)} media.",
            path,
        )
    paths = [f"{path}.multimodal_data[{i}]" for i in range(len(data))]
    return PromptWithMedia(text, [MediaPart(p, from_base64(one, p)) for p, one in zip(paths, data, strict=True)])


def _tokens(value: list[Json], whole_prompt: Json) -> list[int] | MixedPrompt:
    """Token ids, perhaps with texts among them."""
    if set(map(type, value)) == {int} and min(value) >= 0:  # fast: a prompt may be long
        return value
    parts = [part if isinstance(part, str) else whole(part) for part in value]
    if any(part is None or (isinstance(part, int) and part < 0) for part in parts):
        raise wrong_type("prompt", "a string or a list of token ids", whole_prompt)
    found = tuple(part for part in parts if part is not None)
    ids = [part for part in found if isinstance(part, int)]
    return MixedPrompt(found) if len(ids) < len(found) else ids
