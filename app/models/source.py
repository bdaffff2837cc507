"""What loads, and the registry of models, need of the browser."""

from typing import Any, Protocol

from app.models.catalog import Catalog
from app.models.loaded import Loaded
from app.models.progress import OnProgress
from app.models.projector import LoadedProjector
from py_engine.options import LoadOptions


class EngineSource(Protocol):
    """Where an engine comes from."""

    async def open_source(self, part: Any, on_progress: OnProgress) -> Any:
        """py_engine.files.shards.open_source."""

    async def estimate_engine(self, source: Any, header: Any, options: LoadOptions) -> dict[str, Any]:
        """py_engine.engine.Engine.estimate."""

    async def load_engine(self, source: Any, header: Any, options: LoadOptions, on_progress: OnProgress) -> Any:
        """py_engine.engine.Engine.load."""

    async def load_projector(
        self, model: Loaded, source: Any, header: Any, options: LoadOptions, on_progress: OnProgress
    ) -> LoadedProjector:
        """py_engine.encoder.Encoder.load, beside a text model that is loaded."""


class Source(EngineSource, Protocol):
    """Where models come from."""

    async def catalog(self) -> Catalog:
        """The models that come with the page."""

    async def inspect_engine(
        self, source: Any, header: Any, options: LoadOptions, capacity: int, estimated: bool
    ) -> dict[str, Any]:
        """py_engine.inspection.inspect."""

    async def cached_models(self) -> list[dict[str, Any]]:
        """py_engine.files.model_cache.cached_models."""

    async def delete_cached(self, url: str) -> None:
        """py_engine.files.model_cache.forget."""

    async def has_newer(self, url: str) -> bool:
        """py_engine.files.updates.newer."""

    async def update_cached(self, url: str, on_progress: OnProgress) -> None:
        """py_engine.files.updates.update."""

    async def pin_cached(self, url: str, pinned: bool) -> None:
        """py_engine.files.model_cache.pin."""

    async def prefix_usage(self) -> dict[str, int]:
        """py_engine.files.prefixes.prefix_usage."""

    async def limit_prefixes(self, limit: int) -> None:
        """py_engine.files.prefixes.limit_prefixes."""

    async def clear_prefixes(self) -> None:
        """py_engine.files.prefixes.clear_prefixes."""

    def device_memory(self) -> float | None:
        """GiB of the machine's memory; None where the browser does not report it."""
