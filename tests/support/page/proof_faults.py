"""What the proof finds, for tests/engine/test_proof.py."""

from typing import Any

from py_engine.engine import Engine
from py_engine.options import LoadOptions
from py_engine.plan.sampling import Sampling
from py_engine.proof import proven
from tests.support.page.engines import collect, open_model

PENALISED = Sampling(temperature=0, repeat_penalty=1.3, frequency_penalty=0.2)


def forget() -> None:
    """Begin with nothing known, as another version of the proof would."""
    proven.VERSION += 1


async def penalised_answer(engine: Engine, url: str, options: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
    """An answer with penalties, whose kernels are compiled for it; the model may be loaded again meanwhile."""
    notices: list[str] = []

    async def reload(changed: LoadOptions) -> Engine:
        source, header = await open_model(url)
        try:
            return await Engine.load(source, header, changed)
        finally:
            source.close()

    engine.reload_after_loss(LoadOptions(**options), reload, notices.append)
    ids = await collect(engine, prompt, PENALISED, 12)
    return {"ids": ids, "proof": engine.stats()["proof"], "notices": [*notices, *engine.notices]}
