"""Headers of goldens with other metadata, and the hyperparameters that these give."""

from dataclasses import replace
from typing import Any

from py_engine import planner
from py_engine.files.gguf_header import Header
from py_engine.models.families import family
from py_engine.plan.kernels import Device
from tests.support.cpu_models import header


def changed(name: str, changes: dict[str, Any]) -> Header:
    """A golden's header with other metadata; None: without."""
    found = header(name)
    own = {f"{found.architecture}.{key}": value for key, value in changes.items()}
    metadata = {key: value for key, value in (found.metadata | own).items() if value is not None}
    return replace(found, metadata=metadata)


def config(name: str, **changes: Any) -> Any:
    """The hyperparameters of a golden's changed header."""
    found = changed(name, changes)
    return family(found).Config.from_gguf(found)


def plan(found: Header) -> None:
    """Plan the model for a context of 64 tokens."""
    planner.make_plan(found, Device(software=True), planner.PlanOptions(64, 16, "f32", None))
