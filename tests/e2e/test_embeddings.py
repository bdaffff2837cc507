"""An encoder through the SDK, against its golden."""

import base64
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser

from tests.support.browser import new_profile
from tests.support.tolerances import assert_same_direction
from tools.serve import Server

GOLDEN = Path(__file__).parents[1] / "golden" / "embedding"


def test_an_encoder_in_the_page(chromium: Callable[[str | None], Browser], server: Server) -> None:
    """Embeddings of the golden's ids and of texts (OpenAI's format); chat requests are rejected."""
    golden = np.load(GOLDEN / "bert.F16.npz")
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    out = page.evaluate(
        """async (ids) => {
            const { Wisp } = await import("/wisp.js");
            const engine = await Wisp.create();
            await engine.load({ model: "/repo/tests/golden/embedding/bert.F16.gguf", backend: "cpu" });
            const { embedding, shape } = await engine.evaluate(ids);
            const rows = await engine.evaluate(ids, { pooling: "none" });
            const whole = await engine.embeddings.create({ input: ["hello world", ids], encoding_format: "base64" });
            const few = await engine.embeddings.create({ input: ids, dimensions: 8 });
            const ask = { messages: [{ role: "user", content: "Hi" }] };
            const refused = await engine.chat.completions.create(ask).catch((error) => error.code);
            return { embedding: [...embedding], shape, rows: [...rows.embedding], rowsShape: rows.shape, whole, few,
                     refused };
        }""",
        golden["prompt"].tolist(),
    )
    context.close()
    want = golden["embd_cls_ref"]
    assert out["shape"] == [64]
    assert_same_direction(want, np.array(out["embedding"], np.float32), "f32")
    assert_same_direction(golden["embd_none_ref"], np.array(out["rows"], np.float32).reshape(out["rowsShape"]), "f32")
    text, ids = (np.frombuffer(base64.b64decode(d["embedding"]), np.float32) for d in out["whole"]["data"])
    assert abs(np.linalg.norm(text) - 1) < 1e-5
    np.testing.assert_allclose(ids, want / np.linalg.norm(want), atol=1e-4)
    np.testing.assert_allclose(out["few"]["data"][0]["embedding"], ids[:8] / np.linalg.norm(ids[:8]), atol=1e-4)
    assert out["few"]["usage"] == {"prompt_tokens": 24, "total_tokens": 24}
    assert out["refused"] == "unsupported_parameter"
