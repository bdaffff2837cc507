"""The browser's storage: which model files are there, which are pinned, removal; and the prompt cache."""

from collections.abc import Awaitable, Callable
from typing import Any

from app.models.catalog import Catalog, set_address, set_name
from app.models.progress import OnProgress
from app.models.source import Source
from py_engine.errors import NOT_FOUND, WispError


class Storage:
    """What `models.cached()`, `models.pin()` and `models.delete()` of the SDK do."""

    def __init__(self, source: Source, catalog: Callable[[], Awaitable[Catalog]], urls: Callable[[], set[str]]) -> None:
        """`urls()`: addresses of the models that are loaded or being loaded."""
        self._source, self._catalog, self._urls = source, catalog, urls

    @property
    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[Any]]]:
        """Message kind -> what answers it."""
        source = self._source
        return {
            "models.cached": lambda fields: self.listing(),
            "models.delete": lambda fields: self.delete(_name(fields)),
            "models.pin": lambda fields: self.pin(_name(fields), fields.get("pinned")),
            "promptCache.usage": lambda fields: source.prefix_usage(),
            "promptCache.limit": self._limit_prefixes,
            "promptCache.clear": lambda fields: source.clear_prefixes(),
        }

    async def _limit_prefixes(self, fields: dict[str, Any]) -> None:
        limit = fields.get("bytes")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < 1 << 53:
            raise WispError("bytes must be a number of bytes, 0 or more.", "invalid_value", param="bytes")
        await self._source.limit_prefixes(int(limit))

    async def listing(self) -> list[dict[str, Any]]:
        """{id, url, size, bytes, complete, verified, pinned, last_used, loaded} of each, most recently used first."""
        catalog, urls = await self._catalog(), self._urls()
        return [
            {
                "id": catalog.id_of(model["url"]),
                "url": model["url"],
                "size": model["size"],
                "bytes": model["bytes"],
                "complete": model["complete"],
                "verified": model["verified"] or model["url"] in catalog.urls,  # the catalog has hashes of its records
                "pinned": model["pinned"],
                "last_used": None if model["used"] is None else int(model["used"]),
                "loaded": model["url"] in urls,
            }
            for model in await self._source.cached_models()
            if "#" not in model["url"]  # a newer version on its way
        ]

    async def delete(self, name: str | None) -> int:
        """Delete a model, by id or address, or all; returns the bytes. Loaded models stay loaded."""
        models = await self._named(name) if name is not None else await self.listing()
        for model in models:
            await self._source.delete_cached(model["url"])
        return sum(model["bytes"] for model in models)

    async def pin(self, name: str | None, pinned: Any) -> None:
        """Set whether a model, by id or address, is never removed to make space for others."""
        if not isinstance(pinned, bool):
            raise WispError("pinned must be true or false.", "invalid_type", param="pinned")
        for model in await self._named(name):
            await self._source.pin_cached(model["url"], pinned)

    async def newer(self, parts: tuple[Any, ...]) -> list[str]:
        """Addresses among a model's parts whose files have changed on their host. Asks each once a day."""
        hashed = (await self._catalog()).urls  # their addresses change with their contents
        return [
            part
            for part in parts
            if isinstance(part, str) and part not in hashed and await self._source.has_newer(part)
        ]

    async def update(self, name: str | None, on_progress: OnProgress) -> None:
        """Replace a file, by id or address, by its host's version. The old one stays until the new one is whole."""
        models = await self._named(name)
        if len(models) > 1:  # one after the other, a failure would leave files of two versions
            message = f"{name!r} is stored in {len(models)} files. Update each by its address (models.cached())."
            raise WispError(message, "invalid_value", param="model")
        await self._source.update_cached(models[0]["url"], on_progress)

    async def _named(self, name: str | None) -> list[dict[str, Any]]:
        found = await self.listing()
        models = [model for model in found if name in (model["id"], model["url"])]
        models = models or [model for model in found if name == set_name(model["id"])]  # all files of a set
        if not models:
            raise WispError(f"The browser's storage has no model {name!r}.", "model_not_found", NOT_FOUND, "model")
        if len({set_address(model["url"]) for model in models}) > 1:
            message = f"Several stored models are named {name!r}. Give the address of one (models.cached())."
            raise WispError(message, "invalid_value", param="model")
        return models


def _name(fields: dict[str, Any]) -> str | None:
    """The id or address of the model that a message is about."""
    name = fields.get("model")
    if name is not None and not isinstance(name, str):
        raise WispError("model must be a string.", "invalid_type", param="model")
    return name or None
