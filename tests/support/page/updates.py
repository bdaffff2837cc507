"""Updates of a cached model."""

from typing import Any

import js

from py_engine.errors import WispError
from py_engine.files import updates
from tests.support.page.shards import RECORD_BYTES


async def newer(url: str, days: int = 0) -> bool:
    """Whether the host has another version, if it was last asked so many days ago; 0: whenever it was."""
    if days:
        await js.wispShards.putAsked(url, js.Date.now() - days * updates.DAY_MS)
    return await updates.newer(url)


async def update(url: str) -> dict[str, Any]:
    """Update a model; the stats, or the error."""
    try:
        return {"stats": await updates.update(url, lambda *_: None, max_record=RECORD_BYTES)}
    except WispError as error:
        return error.as_dict()
