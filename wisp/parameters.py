"""The keyword arguments of loads and requests. docs/sdk.md and docs/parameters.md say what each does."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

Messages = str | Sequence[dict[str, Any]]  # a user's message, or a conversation in OpenAI's shape
OnProgress = Callable[[str, int, int], object]  # (stage, bytes done, bytes in total)
OnText = Callable[[str], object]  # gets the answer's next piece of text


class LoadParameters(TypedDict, total=False):
    """How a model is to be loaded."""

    name: str  # of the model in answers; default: its file's
    context_length: int  # tokens; default: 8192, or the model's limit where that is less
    backend: str  # "webgpu", "cpu", or "auto": WebGPU where there is a GPU
    kv_type: str  # of the KV cache: "f16", "f32" or "q8_0"
    parallel: int  # requests that run side by side
    threads: int  # of the CPU engine
    speculation: bool  # draft the next tokens where that pays
    mtp: bool  # also by the model's own layer for multi-token prediction; default: on a real GPU
    tune: bool  # choose kernels by measuring them
    prove: bool  # compare each kernel's results with numpy's before the first token; default: on a real GPU
    prompt_embeddings: bool  # prompts may have embeddings in place of tokens (Engine.generate)
    vocab_only: bool  # load the tokenizer and the chat template only
    sha256: str | list[str]  # expected of the file, or of each file
    lora: list[Any]  # LoRA adapters and control vectors: files as `model`, or {"model", "scale", "layers"}
    draft: Any  # a small model of the same vocabulary, or one made for this model, that drafts: as `model`
    draft_tokens: int  # of a draft at most before the model verifies them
    projector: Any  # the model's projector for pictures and sound: as `model`


class Parameters(TypedDict, total=False):
    """OpenAI's parameters of a request, with Wisp's."""

    max_tokens: int
    stop: str | list[str]
    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repeat_penalty: float
    dry_multiplier: float
    diffusion_steps: int  # these of diffusion models only
    diffusion_eps: float
    diffusion_block_length: int
    diffusion_algorithm: int
    diffusion_alg_temp: float
    logit_bias: dict[str, float]
    ignore_eos: bool
    logprobs: bool | int
    top_logprobs: int
    response_format: dict[str, Any]
    grammar: str  # GBNF
    regex: str
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    reasoning_effort: str
    chat_template_kwargs: dict[str, Any]
    lora: list[dict[str, float]]  # [{"id", "scale"}]: adapters by their place in the load; 0 for the others
    truncation: str
