"""The models that come with the page, and how `model` of a load request is resolved."""

import re
from dataclasses import dataclass
from typing import Any

from py_engine.errors import NOT_FOUND, WispError

_ADDRESS = re.compile(r"(https?|blob|data|file):", re.IGNORECASE)
_PART = re.compile(r"-[0-9]{5}-of-([0-9]{5})(?=\.gguf(?:[?#]|$))", re.IGNORECASE)
_NUMBER = re.compile(r"-[0-9]{5}-of-[0-9]{5}$", re.IGNORECASE)
_MOST_PARTS = 1000


@dataclass(frozen=True)
class Choice:
    """A model to load: its id in answers, and its parts (URLs or the browser's File objects)."""

    id: str
    parts: tuple[Any, ...]


class Catalog:
    """Entries of catalog.json: {id, name, description, license, url, size, sha256, default}."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        """`entries`: with absolute URLs."""
        self._entries = {e["id"]: e for e in entries}

    def choose(self, model: Any, name: str | None = None) -> Choice:
        """Resolve a catalog id, a URL, a File, a list of either, or None (the default model)."""
        if model is None:
            model = self._default()
        if isinstance(model, list | tuple):
            if not model:
                raise WispError("model is an empty list.", "invalid_value", param="model")
            return Choice(name or set_name(_file_name(model[0])), tuple(_address(part) for part in model))
        if isinstance(model, str) and model in self._entries:
            return Choice(model, (self._entries[model]["url"],))
        if isinstance(model, str) and "/" not in model and not model.lower().endswith(".gguf"):
            known = ", ".join(self._entries) or "none"
            raise WispError(
                f"There is no model {model!r}. Give the address of a .gguf file, or one of the catalog: {known}.",
                "not_found",
                NOT_FOUND,
                "model",
            )
        return Choice(name or set_name(_file_name(model)), _whole_set(_address(model)))

    def projector(self, projector: Any, model: Any) -> tuple[Any, ...]:
        """The parts of the projector that a load asks for; of a model of the catalog, its own; () if there is none."""
        if projector is None:
            entry = self._entries.get(model if isinstance(model, str) else self._default() if model is None else "", {})
            return (entry["projector"],) if "projector" in entry else ()
        parts = tuple(projector) if isinstance(projector, list | tuple) else (projector,)
        return tuple(_address(part, "projector") for part in parts)

    def adapters(self, adapters: Any) -> tuple[Any, ...]:
        """The files of the LoRA adapters and control vectors that a load asks for."""
        if adapters is None:
            return ()
        if not isinstance(adapters, list | tuple):
            raise WispError("lora must be a list of adapters: [{ model, scale }].", "invalid_type", param="lora")
        return tuple(_address(part, "lora") for part in adapters)

    def draft(self, draft: Any) -> tuple[Any, ...]:
        """The parts of the draft model that a load asks for: a catalog id, or addresses and files."""
        if draft is None:
            return ()
        if isinstance(draft, str) and draft in self._entries:
            return (self._entries[draft]["url"],)
        if isinstance(draft, list | tuple):
            return tuple(_address(part, "draft") for part in draft)
        return _whole_set(_address(draft, "draft"))

    def _default(self) -> str:
        chosen = next((i for i, e in self._entries.items() if e.get("default")), next(iter(self._entries), None))
        if chosen is None:
            raise WispError("There is no default model. Name the model to load.", "not_found", NOT_FOUND, "model")
        return chosen

    def id_of(self, url: str) -> str:
        """The id that a stored file of that address is listed under; its number tells it from others of its set."""
        return next((i for i, entry in self._entries.items() if entry["url"] == url), _file_name(url))

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    @property
    def ids(self) -> list[str]:
        """The ids of the models that come with the page."""
        return list(self._entries)

    @property
    def urls(self) -> set[str]:
        """The addresses of the models that come with the page."""
        return {entry["url"] for entry in self._entries.values()}

    def listing(self, others: list[str], loaded: set[str], default: str | None) -> dict[str, Any]:
        """OpenAI's list of models: the catalog and `others`."""
        entries = [*self._entries.values(), *({"id": i, "name": i} for i in others if i not in self._entries)]
        data = [_model(e["id"], loaded, default, {k: v for k, v in e.items() if k != "id"}) for e in entries]
        return {"object": "list", "data": data}


def _model(model_id: str, loaded: set[str], default: str | None, details: dict[str, Any]) -> dict[str, Any]:
    head = {"id": model_id, "object": "model", "created": 0, "owned_by": "wisp"}
    return {**head, **details, "loaded": model_id in loaded, "default": model_id == default}


def _address(part: Any, param: str = "model") -> Any:
    """Check that a part is a URL or a File."""
    if isinstance(part, str):
        if _ADDRESS.match(part):
            return part
        raise WispError(f"{part!r} is not an address. It must start with https://.", "invalid_value", param=param)
    if part is None or isinstance(part, bool | int | float | dict | list | tuple) or not hasattr(part, "size"):
        raise WispError(
            f"{param} must be {'a catalog id, ' if param == 'model' else ''}the address of a .gguf file, or a file.",
            "invalid_type",
            param=param,
        )
    return part


def _whole_set(part: Any) -> tuple[Any, ...]:
    """All files of a split model, whichever of them an address names: `model-00001-of-00003.gguf`."""
    found = _PART.search(part) if isinstance(part, str) else None
    if found is None or not 1 < int(found[1]) <= _MOST_PARTS:
        return (part,)
    before, after = part[: found.start()], part[found.end() :]
    return tuple(f"{before}-{number:05d}-of-{found[1]}{after}" for number in range(1, int(found[1]) + 1))


def set_address(address: str) -> str:
    """What the addresses of a set's files have in common: that of its first file."""
    return str(_whole_set(address)[0])


def set_name(name: str) -> str:
    """A model's name, from the name of any file of its set: `model-00001-of-00003` is `model`."""
    return _NUMBER.sub("", name) or name


def _file_name(part: Any) -> str:
    """The file's name without folder and ending."""
    path = re.split("[?#]", part)[0] if isinstance(part, str) else str(getattr(part, "name", "") or "model")
    name = path.rsplit("/", 1)[-1]
    if "%" in name:
        from urllib.parse import unquote  # slow to import, rarely needed

        name = unquote(name)
    return name[:-5] if name.lower().endswith(".gguf") else name or "model"
