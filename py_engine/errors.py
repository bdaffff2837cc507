"""The errors that Wisp reports: one exception class, shaped like OpenAI's error object, and the table of codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
NOT_FOUND = "not_found_error"

# code -> what happened (the message of each error adds what to do about it)
CODES: dict[str, str] = {
    # loading a model
    "not_gguf": "the file does not start with GGUF's magic number",
    "truncated_file": "the file ends before the data its header promises",
    "unsupported_version": "a GGUF version, or byte order, that Wisp does not read",
    "corrupt_header": "the header contradicts itself: bad counts, types, offsets, names or duplicates",
    "unsupported_architecture": "no model family for general.architecture",
    "unsupported_quantization": "a tensor has a data type without kernels",
    "missing_tensor": "a tensor that the architecture needs is not in the file",
    "missing_metadata": "a metadata key that the architecture or tokenizer needs is not in the file",
    "bad_tensor_shape": "a tensor's shape does not fit the metadata",
    "http_error": "the server answered with a failure status, given in the message",
    "network_error": "no usable answer: offline, refused by CORS, or the connection was lost",
    "hash_mismatch": "a model file's SHA-256 is not the one that the load request or the file's host states",
    "quota_exceeded": "the browser gives this site too little storage for its settings",
    "storage_failed": "the browser cannot store something, and not for lack of space: a private window, a disk error",
    "storage_unreadable": "the browser cannot read what it has stored; nothing was changed",
    "out_of_memory": "the device refused an allocation, or the model is larger than the memory budget",
    "model_too_large": "the model needs more memory than the device has, or than WebAssembly has in this browser",
    "context_too_long": "the requested context length exceeds the model's limit, or memory",
    "unsupported_tokenizer": "no tokenizer for tokenizer.ggml.model",
    "not_a_projector": "the file given as the projector is another kind of model",
    "unsupported_projector": "a projector of images or sound of a type that Wisp does not have",
    "projector_mismatch": "the projector belongs to another model: its width or its tokens differ",
    "not_an_adapter": "the file given as an adapter is another kind of file, or has tensors that adapters do not have",
    "draft_mismatch": "the draft model has another vocabulary than the model, or was made for another model",
    "adapter_mismatch": "the adapter belongs to another model: its architecture, its tensors or their shapes differ",
    "unsupported_adapter": "the adapter changes tensors to which Wisp cannot apply adapters",
    "bad_chat_template": "the chat template does not compile or fails while rendering",
    "wrong_results": "every variant of a kernel computes wrong results on the GPU, or does not compile",
    "no_webgpu": 'backend "webgpu" was requested and is not available',
    "not_found": "no model of that id",
    # answering a request
    "model_not_loaded": "a request came before any model was loaded",
    "not_ready": "the server has no model yet",
    "model_not_found": "the request names a model that is neither loaded nor in the catalog",
    "empty_messages": "messages is empty",
    "invalid_type": "a parameter has the wrong type",
    "invalid_value": "a parameter has the right type and a value that is not allowed",
    "context_length_exceeded": "the prompt does not fit the context",
    "no_projector": "images or sound for a model without an encoder of them",
    "bad_media": "an image or sound is damaged, or of a format that this browser does not decode",
    "media_too_large": "an image with too many pixels, a sound that is too long, or a file of too many bytes",
    "aborted": "the request was aborted by the caller",
    "unsupported_parameter": "a parameter that Wisp does not implement",
    "upstream_unreachable": "an upstream is not running, or its CORS headers do not allow this page",
    "upstream_timeout": "an upstream was silent for longer than its timeout",
    "upstream_error": "an upstream failed, or its answer does not follow OpenAI's protocol",
    "mcp_unreachable": "an MCP server is not running, or its CORS headers do not allow this page",
    "mcp_unauthorized": "an MCP server wants a token, or another one",
    "mcp_timeout": "an MCP server was silent for longer than its timeout",
    "mcp_error": "an MCP server failed, or does not follow the protocol",
    "internal_error": "a defect in Wisp; the engine stays usable",
    "device_lost": "the GPU was lost, and the model could not be loaded again; the next request tries again",
    # reported by the page, the service worker and the bridge (build.py serve --api), not by the engine
    "worker_crashed": "the engine's worker did not start, or it stopped, and so did the next ones",
    "no_engine": "HTTP: no tab of this origin has an engine",
    "engine_gone": "HTTP: the tab that answered was closed, or its engine stopped",
    "forbidden_host": "bridge: the Host header names another server",
    "forbidden_origin": "bridge: the request comes from a page of another origin",
    "invalid_api_key": "bridge: the API key is missing or wrong",
    "length_required": "bridge: the request has no Content-Length",
    "request_too_large": "bridge: the body exceeds 32 MiB",
    "request_timeout": "bridge: the request did not arrive in time",
}


MAX_MESSAGE = 2000  # characters of a message, and of `param`; both may quote input


class WispError(Exception):
    """An error with one of CODES. `type` is one of the three above; `param` names the offending request field.

    `retry_after`: seconds after which the request may be repeated, where another server has said so.
    `counts`: further fields of the error, as llama.cpp's server has them for a prompt that is too long.
    """

    retry_after: int | None = None
    counts: Mapping[str, int] = {}

    def __init__(self, message: str, code: str, type: str = INVALID_REQUEST, param: str | None = None) -> None:
        self.message = _short(message)
        super().__init__(self.message)
        self.code = code
        self.type = type
        self.param = param and _short(param)

    def as_dict(self) -> dict[str, Any]:
        """{"error": {"message", "type", "param", "code"}}, OpenAI's shape, with the counts if there are any."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error | dict(self.counts)}

    def reworded(self, message: str, param: str | None) -> WispError:
        """The same error in words for another request."""
        error = WispError(message, self.code, self.type, param)
        error.retry_after, error.counts = self.retry_after, self.counts
        return error


def prompt_too_long(message: str, n_tokens: int, n_ctx: int, param: str | None = None) -> WispError:
    """The error for a prompt of so many tokens that a context of n_ctx positions does not hold."""
    error = WispError(message, "context_length_exceeded", param=param)
    error.counts = {"n_prompt_tokens": n_tokens, "n_ctx": n_ctx}
    return error


def _short(text: str) -> str:
    """The text, without its middle where it is too long."""
    half = MAX_MESSAGE // 2
    return text if len(text) <= MAX_MESSAGE else f"{text[: half - 3]} … {text[-half:]}"
