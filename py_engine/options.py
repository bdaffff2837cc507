"""How a model is to be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

PARALLEL = 4  # requests that run side by side by default
REDUCED_BATCH = 128  # the first step down: a shorter dispatch, smaller activations


@dataclass(frozen=True)
class MediaOptions:
    """The pictures and sounds that prompts may have."""

    width: int  # values of an embedding
    tokens: int  # of a picture or a piece of sound, at most
    whole: bool = False  # a token of a picture sees all of it


@dataclass(frozen=True)
class AdapterOptions:
    """How one LoRA adapter or control vector is loaded."""

    scale: float = 1.0  # of requests that say nothing about adapters
    layers: tuple[int, int] | None = None  # first and last layer of a control vector; None: all


@dataclass(frozen=True)
class DraftOptions:
    """The draft model, whose files come last; without any, the model's own MTP layer."""

    files: int  # of the draft model
    tokens: int  # of a draft at most before the model verifies them


@dataclass(frozen=True)
class LoadOptions:
    """Options of Engine.load() and Engine.estimate()."""

    context_length: int | None = None  # tokens; None: the default, or the model's limit where that is less
    backend: str = "auto"  # "webgpu", "cpu", or "auto": WebGPU unless its adapter is a software one
    kv_type: str = "f16"  # of the KV cache: "f16", "f32" or "q8_0"
    parallel: int = PARALLEL  # requests that run side by side, MAX_SEQUENCES at most
    threads: int | None = None  # on the CPU; None: as many as the device has
    speculation: bool = True  # draft the next tokens where that pays
    mtp: bool = False  # draft by the model's own MTP layer, if it has one
    tune: bool | None = None  # choose kernels by measuring them, once per device and model; None: on a real GPU
    prove: bool | None = None  # run each kernel once against numpy, once per device; None: on a real GPU
    variant: dict[str, bool | int] = field(default_factory=dict)  # fields of kernels.Device to force
    clamp_context: bool = False  # lower a context_length above the model's limit to it, instead of an error
    batch: int | None = None  # most tokens of a prefill step; None: the default of the device
    media: MediaOptions | None = None  # None: prompts are text only
    adapters: tuple[AdapterOptions, ...] = ()  # of the adapters among the files, in order
    draft: DraftOptions | None = None

    @property
    def draft_files(self) -> int:
        """How many of the files are the draft model's."""
        return self.draft.files if self.draft is not None else 0


def step_down(options: LoadOptions) -> tuple[LoadOptions, str] | None:
    """Options that need less of a GPU that fails or has too little memory, and a clause that says so.

    In this order: smaller batches, a KV cache in q8_0, the CPU. None: there is nothing less that the user allows.
    """
    if options.batch is None:
        return replace(options, batch=REDUCED_BATCH), "prompts are read in smaller batches"
    if options.kv_type != "q8_0" and options.backend != "cpu":
        return replace(options, kv_type="q8_0"), "the KV cache is stored as q8_0"
    return run_on_cpu(options)


def run_on_cpu(options: LoadOptions) -> tuple[LoadOptions, str] | None:
    """The last step of step_down()."""
    return (replace(options, backend="cpu"), "the model runs on the CPU") if options.backend == "auto" else None
