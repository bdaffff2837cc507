"""LM Studio's REST API: the figures that its version 0 adds to OpenAI's answers.

Source: lmstudio.ai/docs/developer/rest.
"""

from app.compatible import ollama_models
from app.models.loaded import Loaded
from app.openai.fields import Json

_STOP_REASONS = {"stop": "eosFound", "tool_calls": "toolCalls", "length": "maxPredictedTokensReached"}
FORMAT = "gguf"


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
            "format": FORMAT,
            "context_length": engine.context_length,
        },
        "runtime": {"name": f"wisp-{engine.backend}", "supported_formats": [FORMAT]},
    }


def _stop_reason(choice: dict[str, Json], *, fills_context: bool) -> str:
    finish_reason = choice["finish_reason"]
    if choice.get("stop_reason") is not None:
        return "stopStringFound"
    if finish_reason == "length" and fills_context:
        return "contextLengthReached"
    return _STOP_REASONS[finish_reason]
