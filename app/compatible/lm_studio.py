"""LM Studio's REST API: the figures that its version 0 adds to OpenAI's answers, and its lists of models.

A field that is not known here is left out: what a file says of itself is known once it is loaded.
Source: lmstudio.ai/docs/developer/rest.
"""

from app.compatible import ollama_models
from app.models.loaded import Loaded
from app.openai.fields import Json

_STOP_REASONS = {"stop": "eosFound", "tool_calls": "toolCalls", "length": "maxPredictedTokensReached"}
_FORMAT = "gguf"


def with_stats(answer: dict[str, Json], model: Loaded) -> dict[str, Json]:
    """An answer, or the chunk that ends a choice, with its times, its model and what ran it; other chunks as they are.

    Times are in seconds since the request came. Those of several choices are added up; the reason is the first one's.
    """
    choices = answer["choices"]
    choice = next(iter(choices), None)
    if choice is None or not choice["finish_reason"]:
        return answer
    timings, engine = answer["timings"], model.engine_or_error()
    first_s = timings["ttft_ms"] / 1000
    details = ollama_models.details(model.header)
    # Several choices have one sum of tokens, which does not tell whether one of them filled the context.
    tokens = sum(timings[of] for of in ("cache_n", "prompt_n", "predicted_n")) if len(choices) == 1 else 0
    return answer | {
        "stats": {
            "tokens_per_second": timings["predicted_per_second"],
            "time_to_first_token": first_s,
            "generation_time": first_s + timings["predicted_ms"] / 1000,
            "stop_reason": _stop_reason(choice, fills_context=tokens >= engine.context_length),
        },
        "model_info": {
            "arch": details["family"],
            "quant": details["quantization_level"],
            "format": _FORMAT,
            "context_length": engine.context_length,
        },
        "runtime": {"name": f"wisp-{engine.backend}", "supported_formats": [_FORMAT]},
    }


def _stop_reason(choice: dict[str, Json], *, fills_context: bool) -> str:
    finish_reason = choice["finish_reason"]
    if choice.get("stop_reason") is not None:
        return "stopStringFound"
    if finish_reason == "length" and fills_context:
        return "contextLengthReached"
    return _STOP_REASONS[finish_reason]


def described(entry: dict[str, Json], model: Loaded | None) -> dict[str, Json]:
    """A model of version 0's list, from OpenAI's list. `model`: the one of that name; loaded if it has an engine."""
    engine = model.engine if model is not None else None
    made = {
        "id": entry["id"],
        "object": "model",
        "compatibility_type": _FORMAT,
        "state": "not-loaded" if engine is None else "loaded",
    }
    if model is None or engine is None:
        return made
    details, has = ollama_models.details(model.header), ollama_models.capabilities(model)
    made |= {
        "type": "embeddings" if "embedding" in has else "vlm" if "vision" in has else "llm",
        "arch": details["family"],
        "quantization": details["quantization_level"],
        "capabilities": ["tool_use"] if "tools" in has else [],
        "loaded_context_length": engine.context_length,
    }
    return made | _publisher(model) | _longest_context(model)


def described_v1(entry: dict[str, Json], model: Loaded | None) -> dict[str, Json]:
    """A model of version 1's list, as described() has it."""
    made = {
        "key": entry["id"],
        "display_name": entry.get("name") or entry["id"],
        "format": _FORMAT,
        "description": entry.get("description"),
        "quantization": None,
        "params_string": None,
        "loaded_instances": [],
    }
    if model is None or model.engine is None:
        return made | ({"size_bytes": entry["size"]} if entry.get("size") else {})
    details, has = ollama_models.details(model.header), ollama_models.capabilities(model)
    bytes_, parameters = ollama_models.size(model.header), ollama_models.parameters(model.header)
    bits = round(8 * bytes_ / parameters, 2) if parameters else None
    made |= {
        "quantization": {"name": details["quantization_level"], "bits_per_weight": bits},
        "params_string": details["parameter_size"],
        "size_bytes": entry.get("size") or bytes_,
        "loaded_instances": [{"id": model.id, "config": {"context_length": model.engine.context_length}}],
    }
    made |= _publisher(model) | _longest_context(model)
    if "embedding" in has:
        return made | {"type": "embedding"}
    can = {"vision": "vision" in has, "trained_for_tool_use": "tools" in has}
    return made | {"type": "llm", "architecture": details["family"], "capabilities": can}


def _publisher(model: Loaded) -> dict[str, Json]:
    name = model.header.metadata.get("general.organization")
    return {"publisher": name} if isinstance(name, str) else {}


def _longest_context(model: Loaded) -> dict[str, Json]:
    metadata = model.header.metadata
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return {"max_context_length": length} if isinstance(length, int) else {}
