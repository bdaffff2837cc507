"""LM Studio's models: the lists of its REST API's versions 0 and 1, and the loads and unloads of version 1.

A field that is not known here is left out: what a file says of itself is known once it is loaded.
Source: lmstudio.ai/docs/developer/rest.
"""

from dataclasses import dataclass

from app.compatible import ollama_models
from app.compatible.lm_studio import FORMAT
from app.models.loaded import Loaded
from app.openai.fields import Body, Json, boolean, integer, text, with_known_fields, wrong_type, wrong_value
from py_engine.errors import WispError

_SWITCHES = ("flash_attention", "offload_kv_cache_to_gpu")  # of llama.cpp's memory and speed; they change no answer


@dataclass(frozen=True)
class LoadRequest:
    """A checked request to load a model. `echo`: its answer tells with what the model is loaded."""

    model: str
    context_length: int | None
    echo: bool


def load_request(body: Json) -> LoadRequest:
    """Check a request to /api/v1/models/load. `num_experts` would change answers, and is refused."""
    known = {"model", "context_length", "eval_batch_size", "echo_load_config", *_SWITCHES}
    body = with_known_fields(body, known)
    for name in _SWITCHES:
        boolean(body, name)
    integer(body, "eval_batch_size", 1)
    return LoadRequest(_required(body, "model"), integer(body, "context_length", 1), boolean(body, "echo_load_config"))


def unload_request(body: Json) -> str:
    """Check a request to /api/v1/models/unload, and return the model's name, which is also its instance's id."""
    return _required(with_known_fields(body, {"instance_id"}), "instance_id")


def loaded(model: Loaded, seconds: float, *, echo: bool) -> dict[str, Json]:
    """The answer of /api/v1/models/load. `seconds`: what the load took."""
    engine = model.engine_or_error()
    kind = "embedding" if "embedding" in ollama_models.capabilities(model) else "llm"
    answer = {"type": kind, "instance_id": model.id, "load_time_seconds": seconds, "status": "loaded"}
    return answer | ({"load_config": {"context_length": engine.context_length}} if echo else {})


def check_context(model: Loaded, length: int | None) -> None:
    """Raise WispError if a loaded model has another context than the one that a load asks for; None: any.

    Where memory did not suffice, a model has a shorter one than its own load asked for.
    """
    has = model.engine_or_error().context_length
    if length in (None, has, model.options.engine.context_length):
        return
    raise WispError(
        f"{model.id} is loaded with a context of {has} tokens, which a request does not change; "
        "leave context_length out, or unload the model first.",
        "invalid_value",
        param="context_length",
    )


def reworded(error: WispError) -> WispError:
    """The error of a load with LM Studio's name of the context's length."""
    if "contextLength" not in error.message and error.param != "contextLength":
        return error
    param = "context_length" if error.param == "contextLength" else error.param
    return error.reworded(error.message.replace("contextLength", "context_length"), param)


def _required(body: Body, name: str) -> str:
    value = text(body, name)
    if value is None:
        raise wrong_type(name, "a string", None)
    if not value:
        raise wrong_value(f"{name} is empty.", name)
    return value


def described(entry: dict[str, Json], model: Loaded | None) -> dict[str, Json]:
    """A model of version 0's list, from OpenAI's list. `model`: the one of that name; loaded if it has an engine."""
    engine = model.engine if model is not None else None
    made = {
        "id": entry["id"],
        "object": "model",
        "compatibility_type": FORMAT,
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
        "format": FORMAT,
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
