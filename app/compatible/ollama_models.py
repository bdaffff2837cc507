"""Ollama's descriptions of models: the lists of all and of loaded ones, and what a model's file says."""

from collections.abc import Mapping
from math import prod

from app.compatible.ollama import iso_time
from app.models.loaded import Loaded
from app.openai.fields import Json
from py_engine.files.gguf_header import Header

NEVER = "9999-12-31T23:59:59Z"  # when an idle model is unloaded
# general.file_type of GGUF -> the quantization's name
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
_UNITS = ((10**12, "T", 1), (10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0))


def tag(entry: dict[str, Json], model: Loaded | None) -> dict[str, Json]:
    """A model of /api/tags, from OpenAI's list with the catalog's fields. `model`: if it is loaded."""
    return {
        "name": entry["id"],
        "model": entry["id"],
        "modified_at": iso_time(entry.get("created") or 0),
        "size": entry.get("size") or (size(model.header) if model is not None else 0),
        "digest": str(entry.get("sha256") or ""),
        "details": details(model.header if model is not None else None),
    }


def running(entry: dict[str, Json], model: Loaded) -> dict[str, Json]:
    """A model of /api/ps."""
    engine = model.engine
    on_gpu = engine is not None and engine.backend == "webgpu"
    context = {"context_length": engine.context_length} if engine is not None else {}
    times = {"expires_at": NEVER, "size": model.bytes, "size_vram": model.bytes if on_gpu else 0}
    listed = {name: value for name, value in tag(entry, model).items() if name != "modified_at"}
    return listed | times | context


def shown(model: Loaded) -> dict[str, Json]:
    """The answer of /api/show: what the file says, without its vocabulary."""
    metadata, template = model.header.metadata, model.template.source
    info = {name: value for name, value in metadata.items() if isinstance(value, str | int | float | bool)}
    info.pop("tokenizer.chat_template", None)
    info["general.parameter_count"] = parameters(model.header)
    return {
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": details(model.header),
        "model_info": info,
        "capabilities": capabilities(model),
        "modified_at": iso_time(0),
    }


def details(header: Header | None) -> dict[str, Json]:
    """What Ollama's lists say of a file; nothing of one that has not been read."""
    family = str(header.metadata.get("general.architecture", "")) if header is not None else ""
    kind = header.metadata.get("general.file_type") if header is not None else None
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": _short(parameters(header)) if header is not None else "",
        "quantization_level": _FILE_TYPES.get(kind, "unknown") if isinstance(kind, int) else "",
    }


def parameters(header: Header) -> int:
    """The values of all tensors of a file."""
    return sum(prod(tensor.shape) for tensor in header.tensors.values())


def size(header: Header) -> int:
    """The bytes of all tensors of a file."""
    return sum(tensor.nbytes for tensor in header.tensors.values())


def _short(number: int) -> str:
    """A number as Ollama writes it, such as 8.9M and 3.2B."""
    for unit, name, digits in _UNITS:
        if number >= unit:
            return f"{number / unit:.{0 if number % unit == 0 else digits}f}{name}"
    return str(number)


def capabilities(model: Loaded) -> list[str]:
    """What a loaded model can do, in Ollama's words."""
    engine, template = model.engine, model.template.source
    if engine is not None and engine.embeddings.preferred:
        return ["embedding"]
    senses: Mapping[str, bool] = model.senses
    found = {
        "completion": True,
        "tools": "tools" in template or model.template.of_tools is not None,
        "thinking": "enable_thinking" in template or "<think>" in template,
        "vision": senses["image"],
        "audio": senses["audio"],
    }
    return [name for name, has in found.items() if has]
