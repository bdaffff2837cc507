"""Check requests for chats and completions, field by field.

A wrong type or value is an error whose `param` names the field. So is a parameter that Wisp does not implement,
unless its value has no effect; no parameter is ignored silently.
"""

from dataclasses import dataclass, field

from app.openai import formats, llama_parameters, lora, sampling, tools
from app.openai.fields import (
    Body,
    Json,
    boolean,
    integer,
    mapping,
    one_of,
    text,
    unsupported,
    whole,
    wrong_type,
    wrong_value,
)
from app.openai.formats import Format
from app.openai.lora import Scales
from app.openai.messages import CompletionPrompt, Infill, messages, prompts, split_final
from app.openai.sampling import TextParameters
from app.openai.tools import Tools
from py_engine.plan.sampling import Sampling

MAX_STOPS = 4  # as OpenAI has it; other servers, whose requests are converted, accept more
MAX_N = 128
MAX_CHOICES = 2048  # of all prompts of a completion; each waits as a task of its own
RETENTIONS = ("24h", "in_memory", "in-memory")  # OpenAI's documentation has both spellings of the last
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # from the least to the most

# Parameters that are not implemented: name -> the values that have no effect, and are accepted.
_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "guided_whitespace_pattern": (),
}
# Parameters about accounts and storage at OpenAI: accepted, without a meaning on this machine.
# So are LM Studio's and Ollama's about how long a model stays loaded, LM Studio's draft, which changes no answer, and
# vLLM's about which library writes the masks of a form.
_IGNORED = frozenset(
    ["model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
     "prompt_cache_options", "ttl", "keep_alive", "draft_model", "guided_decoding_backend"]
)  # fmt: skip
_COMMON = (
    frozenset(["stream", "stream_options", "logprobs", "truncation", "prompt_cache_retention"])
    | llama_parameters.PASSED_ON
    | llama_parameters.LIMITS
    | sampling.NAMES
    | formats.NAMES
)
_CHAT = (
    _COMMON
    | tools.NAMES
    | {"messages", "max_completion_tokens", "chat_template_kwargs", "top_logprobs", "reasoning_effort",
       "reasoning", "reasoning_format", "continue_final_message", "add_generation_prompt"}
)  # fmt: skip
_COMPLETION = _COMMON | {"prompt", "echo", "best_of", "suffix"}


@dataclass
class Request:
    """The fields that chats and completions share."""

    sampling: Sampling
    text_parameters: TextParameters
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    n: int
    ignore_eos: bool
    cache_prompt: bool
    private: bool  # what is computed for it is not stored beyond this visit
    truncate: bool  # if a conversation does not fit, drop its oldest turns instead of an error
    format: Format | None
    lora: Scales | None  # of LoRA adapters and control vectors; None: the model's default
    detailed: bool = False  # chunks have token ids and, first, the prompt's length


@dataclass
class ChatRequest(Request):
    """A checked chat completion request. Messages have OpenAI's shape."""

    messages: list[dict[str, Json]] = field(default_factory=list)
    template_variables: dict[str, Json] = field(default_factory=dict)
    tools: Tools = field(default_factory=Tools)
    split_reasoning: bool = True
    continued: str = ""  # the beginning of the answer: the content of a last message that is not in `messages`
    continues_verbatim: bool = False  # the special tokens of `continued` count: it is no client's text


@dataclass
class CompletionRequest(Request):
    """A checked completion request. Prompts are texts or token ids."""

    prompts: list[CompletionPrompt] = field(default_factory=list)
    echo: bool = False


def chat_request(body: Json, max_stops: int = MAX_STOPS) -> ChatRequest:
    """Check a chat completion request."""
    body = _object(body, _CHAT)
    limits = [_limit(body, name, 1) for name in ("max_completion_tokens", "max_tokens")]
    common = _common(body, _first(*limits, _n_predict(body)), sampling.chat_logprobs(body), max_stops)
    chosen = tools.tools(body)
    if chosen.required and common.format is not None:
        param = common.format.param
        raise wrong_value(f"tool_choice requires a tool call, which {param} does not allow; leave out one.", param)
    conversation, continued = messages(body.get("messages")), ""
    if _continues(body):
        conversation, continued = split_final(conversation)
    return ChatRequest(
        **vars(common),
        messages=conversation,
        continued=continued,
        template_variables=_effort(body) | (mapping(body, "chat_template_kwargs") or {}),
        tools=chosen,
        split_reasoning=one_of(body, "reasoning_format", ("auto", "deepseek", "none")) != "none",
    )


def completion_request(body: Json, max_stops: int = MAX_STOPS) -> CompletionRequest:
    """Check a completion request. max_tokens defaults to 16, as OpenAI's does."""
    body = _object(body, _COMPLETION)
    limit = _first(_limit(body, "max_tokens", 0), _n_predict(body), 16)
    common = _common(body, limit, sampling.completion_logprobs(body), max_stops)
    best = integer(body, "best_of", 1, 20)
    if best is not None and best != common.n:
        raise unsupported("best_of is only supported if it equals n.", "best_of")
    echo = boolean(body, "echo")
    if echo and common.sampling.logprobs >= 0:
        raise unsupported("echo is not supported together with logprobs.", "echo")
    given = prompts(body.get("prompt"))
    if suffix := text(body, "suffix"):
        given = [_with_suffix(prompt, suffix, echo) for prompt in given]
    if (choices := len(given) * common.n) > MAX_CHOICES:
        raise wrong_value(f"prompt and n ask for {choices} choices; {MAX_CHOICES} are allowed at once.", "prompt")
    return CompletionRequest(**vars(common), prompts=given, echo=echo)


def _with_suffix(prompt: CompletionPrompt, suffix: str, echo: bool) -> CompletionPrompt:
    if echo:
        raise unsupported("echo is not supported together with suffix.", "echo")
    if not isinstance(prompt, str):
        raise unsupported("suffix is supported with texts as the prompt only.", "suffix")
    return Infill(prompt, suffix, "suffix")


def _continues(body: Body) -> bool:
    """Whether the answer continues the last message. vLLM's clients then send `add_generation_prompt: false`, too."""
    continues = boolean(body, "continue_final_message")
    begins = boolean(body, "add_generation_prompt", not continues)
    if continues and begins:
        what = "continue_final_message and add_generation_prompt exclude each other; only one may be true."
        raise wrong_value(what, "add_generation_prompt")
    if not continues and not begins:
        what = "add_generation_prompt: false is supported only with continue_final_message."
        raise unsupported(what, "add_generation_prompt")
    if continues and body.get("tools"):
        raise unsupported("continue_final_message is not supported with tools.", "continue_final_message")
    return continues


def _limit(body: Body, name: str, least: int) -> int | None:
    """The most tokens of an answer. -1, as in LM Studio and llama.cpp: until the answer or the context ends."""
    return llama_parameters.UNLIMITED if whole(body.get(name)) == -1 else integer(body, name, least)


def _n_predict(body: Body) -> int | None:
    return llama_parameters.token_limit(body.get("n_predict"))


def _first(*values: int | None) -> int | None:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)


def _object(body: Json, known: frozenset[str]) -> Body:
    """Check the names in a body. What its list `samplers` leaves out is switched off in the result."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name in known or name in _IGNORED or llama_parameters.has_no_effect(name, value):
            continue
        if name not in _NEUTRAL and name not in llama_parameters.NOT_IMPLEMENTED:
            raise unsupported(f"Unrecognized request argument supplied: {name}", name)
        if not any(llama_parameters.same(value, neutral) for neutral in _NEUTRAL.get(name, ())):
            raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    return body | llama_parameters.switched_off(body)


def _common(body: Body, max_tokens: int | None, logprobs: int, max_stops: int) -> Request:
    stream = boolean(body, "stream")
    made, texts = sampling.sampling(body, logprobs)
    return Request(
        sampling=made,
        text_parameters=texts,
        max_tokens=max_tokens,
        stop=_stop(body.get("stop"), max_stops),
        stream=stream,
        include_usage=_stream_options(body.get("stream_options"), stream),
        n=_first(integer(body, "n", 1, MAX_N), integer(body, "n_cmpl", 1, MAX_N)) or 1,
        ignore_eos=boolean(body, "ignore_eos"),
        cache_prompt=boolean(body, "cache_prompt", default=True),
        private=one_of(body, "prompt_cache_retention", RETENTIONS) not in (None, "24h"),
        truncate=one_of(body, "truncation", ("auto", "disabled")) == "auto",
        format=formats.requested(body),
        lora=lora.requested(body.get("lora")),
    )


def _effort(body: Body) -> dict[str, Json]:
    """Return reasoning_effort, or Ollama's reasoning.effort, as the template variables of gpt-oss and Qwen.

    `app/answers/reasoning_levels.py` has the level that a template has for it.
    """
    effort = one_of(body, "reasoning_effort", EFFORTS)
    reasoning = mapping(body, "reasoning") or {}
    if unknown := next((name for name, value in reasoning.items() if name != "effort" and value is not None), None):
        raise unsupported(f"reasoning.{unknown} is not supported by this engine; leave it out.", f"reasoning.{unknown}")
    effort = effort or one_of({"reasoning.effort": reasoning.get("effort")}, "reasoning.effort", EFFORTS)
    if effort is None:
        return {}
    return {"reasoning_effort": effort, "enable_thinking": effort not in ("none", "minimal")}


def _stream_options(options: Json, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise wrong_type("stream_options", "an object", options)
    if not stream:
        raise wrong_value("stream_options is only allowed with stream: true.", "stream_options")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            param = f"stream_options.{name}"
            raise unsupported(f"Unrecognized request argument supplied: {param}", param)
    return boolean(options, "include_usage", param="stream_options.include_usage")


def _stop(stop: Json, most: int) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = stop if isinstance(stop, list) else [stop]
    for s in stops:
        if not isinstance(s, str):
            raise wrong_type("stop", "a string or a list of strings", stop)
        if not s:
            raise wrong_value("stop has an empty string, which would end every answer at once; remove it.", "stop")
    if len(stops) > most:
        raise wrong_value(f"stop has {len(stops)} strings; at most {most} are allowed.", "stop")
    return tuple(stops)
