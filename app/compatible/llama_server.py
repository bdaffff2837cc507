"""Requests to /completion of llama.cpp's server, and its answers.

Source: tools/server/README.md of llama.cpp, and what its server answers.
"""

from functools import partial

from app.compatible.samplers import with_any_temperature
from app.models.slots import Task
from app.openai.answers import Identity
from app.openai.converted import MAX_STOPS, Converted, Emit
from app.openai.fields import Body, Json, boolean, text, unsupported, wrong_type
from app.openai.llama_parameters import (
    LIMITS,
    NEUTRAL_VALUES,
    PASSED_ON,
    SAMPLERS,
    UNLIMITED,
    has_no_effect,
    token_limit,
)
from app.openai.messages import CompletionPrompt, Infill, MixedPrompt
from app.openai.requests import CompletionRequest, Request, completion_request
from app.openai.sampling import NAMES as SAMPLING
from app.openai.sampling import PARAMETERS

_DEFAULTS: Body = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "dry_penalty_last_n": 64}
_PASSED_ON = SAMPLING | PASSED_ON | {"model", "prompt", "grammar", "json_schema"}
_OWN = LIMITS | {"stream", "return_tokens", "response_fields"}
_GAP = frozenset(["input_prefix", "input_suffix", "input_extra"])
_DEFAULT_SEED = 0xFFFFFFFF  # that server's -1: a random one
_STOP_TYPES = {"stop": "eos", "length": "limit"}


def completion(body: Json, gaps: list[CompletionPrompt] | None = None) -> Converted:
    """Check a request to /completion. A prompt is text, token ids, or text with media; several are a list.

    `gaps`: the prompts, in place of the request's.
    """
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    _check_known(body)
    boolean(body, "return_tokens")
    request = _DEFAULTS | {name: value for name, value in body.items() if name in _PASSED_ON and value is not None}
    if request.get("seed") == _DEFAULT_SEED:
        del request["seed"]
    given = request.get("dynatemp_range")
    # A dynatemp_range of 0 or less is off. Then the exponent has no effect.
    if isinstance(given, int | float) and not isinstance(given, bool) and given <= 0:
        request = {name: value for name, value in request.items() if not name.startswith("dynatemp_")}
    request["max_tokens"] = _limit(body)
    request |= {"stream": True, "stream_options": {"include_usage": True}}
    made = with_any_temperature(completion_request, request, MAX_STOPS)
    made.detailed, made.prompts = True, gaps or made.prompts
    return Converted(body, made, boolean(body, "stream"), partial(Completion, body, made))


def infill(body: Json) -> Converted:
    """Check a request to /infill: one to /completion, with texts before and after a gap in place of its prompt."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    extra = [] if body.get("input_extra") is None else body["input_extra"]
    if not isinstance(extra, list):
        raise wrong_type("input_extra", "a list of files", extra)
    files = [_file(one, f"input_extra[{i}]") for i, one in enumerate(extra)]
    gap = Infill(
        _text(body, "input_prefix"),
        _text(body, "input_suffix"),
        "model",
        text(body, "prompt") or "",
        tuple(files),
        truncate=True,
    )
    others = {name: value for name, value in body.items() if name not in _GAP}
    return completion(others | {"prompt": gap.prefix + gap.prompt}, [gap])


def _text(body: Body, name: str) -> str:
    if (found := text(body, name)) is None:
        raise wrong_type(name, "a string", None)
    return found


def _file(value: Json, path: str) -> tuple[str, str]:
    """(name, text) of a file of `input_extra`."""
    name, content = (value.get("filename"), value.get("text")) if isinstance(value, dict) else (None, None)
    if not isinstance(content, str):
        raise wrong_type(f"{path}.text", "a string", content)
    if not isinstance(name, str | None):
        raise wrong_type(f"{path}.filename", "a string", name)
    return name or "tmp", content


def embedded(answer: Json) -> list[Json]:
    """/embeddings' answer from OpenAI's."""
    return [{"index": one["index"], "embedding": [list(one["embedding"])]} for one in answer["data"]]


def embeddings_request(body: Body) -> Body:
    """OpenAI's request for one to /embeddings. The text is `content`, or as OpenAI has it `input`."""
    if body.get("encoding_format") == "base64":
        raise unsupported("encoding_format is not supported here; /v1/embeddings has it.", "encoding_format")
    return {name: value for name, value in body.items() if name != "content"} | {"input": body.get(text_field(body))}


def text_field(body: Body) -> str:
    """The field of a request to /embeddings that has its texts."""
    return "content" if body.get("input") is None and body.get("content") is not None else "input"


def begins_answer(body: Body) -> bool:
    """Whether the last message of a chat is the beginning of its answer, for /apply-template."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and len(messages) > 1 else None
    is_said = isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), str)
    return is_said and not body.get("tools") and body.get("add_generation_prompt") is not False


def _check_known(body: Body) -> None:
    for name, value in body.items():
        if name in _PASSED_ON or name in _OWN or has_no_effect(name, value):
            continue
        raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    fields = body.get("response_fields")
    if fields is not None and not (isinstance(fields, list) and all(isinstance(name, str) for name in fields)):
        raise wrong_type("response_fields", "a list of strings", fields)


def _limit(body: Body) -> int:
    """The most tokens to generate. By default: until the answer ends."""
    name = "n_predict" if body.get("n_predict") is not None else "max_tokens"
    return token_limit(body.get(name), name) or UNLIMITED


class Completion:
    """A builder of the answers to one request, `n` for each prompt, from a completion's chunks."""

    def __init__(
        self, given: Body, request: CompletionRequest, model: str, emit: Emit | None, identity: Identity
    ) -> None:
        self._given, self._request, self._model, self._emit = given, request, model, emit
        self._probed = request.sampling.logprobs >= 0
        answers = len(request.prompts) * request.n
        self._texts = [""] * answers
        self._tokens: list[list[int]] = [[] for _ in range(answers)]
        self._evaluated = [0] * answers
        self._probabilities: list[list[Json]] = [[] for _ in range(answers)]
        self._whole: list[Json] = [None] * answers

    @property
    def body(self) -> Json:
        """The whole answer: an object, or a list of several."""
        return self._whole if len(self._whole) > 1 else self._whole[0]

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk."""
        for choice in chunk["choices"]:
            i, text, ids = choice["index"], choice["text"], choice.get("token_ids") or []
            self._evaluated[i] = chunk.get("prompt_tokens", self._evaluated[i])
            self._texts[i] += text
            self._tokens[i] += ids
            found = (choice["logprobs"] or {}).get("content", [])
            self._probabilities[i] += found
            if text or found:
                self._send(self._piece(i, text, ids) | ({"completion_probabilities": found} if self._probed else {}))
            if choice["finish_reason"]:
                self._end(choice, chunk["timings"])

    def _piece(self, i: int, text: str, ids: list[int]) -> dict[str, Json]:
        """An event of a stream that is not the last one."""
        counts = {"tokens_predicted": len(self._tokens[i]), "tokens_evaluated": self._evaluated[i]}
        return {"index": i, "content": text, "tokens": ids, "stop": False, "id_slot": -1} | counts

    def _end(self, choice: dict[str, Json], timings: dict[str, Json]) -> None:
        i, word = choice["index"], choice.get("stop_reason")
        whole = {
            "index": i,
            "content": self._texts[i],
            "tokens": self._tokens[i] if self._given.get("return_tokens") else [],
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": timings["predicted_n"],
            "tokens_evaluated": timings["cache_n"] + timings["prompt_n"],
            "generation_settings": _settings(self._given, self._request),
            "prompt": self._prompt(i),
            "has_new_line": "\n" in self._texts[i],
            "truncated": False,
            "stop_type": "word" if word is not None else _STOP_TYPES[choice["finish_reason"]],
            "stopping_word": word or "",
            "tokens_cached": timings["cache_n"],
            "timings": timings,
        }
        if rest := choice.get("token_ids") or []:  # those of the end, or of a stop string, whose text is not sent
            self._send(self._piece(i, "", rest))
        self._send(self._picked(whole | {"content": "", "tokens": []}))  # the other events had them
        if self._probed:
            whole["completion_probabilities"] = self._probabilities[i]
        self._whole[i] = self._picked(whole)

    def _prompt(self, i: int) -> Json:
        """A prompt as it was given: text, or token ids, or both."""
        given = self._request.prompts[i // self._request.n]
        if isinstance(given, MixedPrompt):
            return list(given.parts)
        if isinstance(given, Infill):
            return given.prefix + given.prompt
        return given if isinstance(given, str | list) else given.text

    def _picked(self, whole: dict[str, Json]) -> dict[str, Json]:
        """The fields that the request asks for; `a/b` is field b of a."""
        paths = self._given.get("response_fields")
        if not paths:
            return whole
        found = {}
        for path in paths:
            value: Json = whole
            for name in path.split("/"):
                value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
            if value is not _MISSING:
                found[path] = value
        return found

    def _send(self, fields: dict[str, Json]) -> None:
        if self._emit is not None:
            self._emit(fields)


_MISSING = object()


def slot(number: int, context: int, task: Task | None) -> dict[str, Json]:
    """A slot of /slots: whether it works, and its answer, or its last one."""
    found = {"id": number, "n_ctx": context, "speculative": False, "is_processing": task is not None and task.runs}
    if task is None:
        return found
    decoded, has_new_line = task.progress()
    left = task.limit - decoded if task.request.max_tokens not in (None, UNLIMITED) else -1
    return found | {
        "id_task": task.number,
        "n_prompt_tokens": task.prompt_tokens,
        "params": slot_params(task.request),
        "next_token": [
            {"has_next_token": task.runs, "has_new_line": has_new_line, "n_remain": left, "n_decoded": decoded}
        ],
    }


def slot_params(request: Request) -> dict[str, Json]:
    """The parameters of a request, for /slots, or for /props those of a request without any."""
    settings = _settings({}, request)
    left_out = ("stop", "logit_bias", "grammar", "stream")
    return {name: value for name, value in settings.items() if name not in left_out}


def default_params() -> dict[str, Json]:
    """What /completion does where a request says nothing."""
    return slot_params(completion({"prompt": ""}).request)


def _settings(given: Body, request: Request) -> dict[str, Json]:
    """What the answer was generated with."""
    names = (name for name in PARAMETERS if not name.startswith("diffusion_"))
    unlimited = request.max_tokens in (None, UNLIMITED)
    return (
        {name: getattr(request.sampling, name) for name in names}
        | {
            "max_tokens": -1 if unlimited else request.max_tokens,
            "n_predict": -1 if unlimited else request.max_tokens,
            "stop": list(request.stop),
            "ignore_eos": request.ignore_eos,
            "stream": boolean(given, "stream"),
            "n_probs": max(0, request.sampling.logprobs),
            "logit_bias": [{"token": token, "bias": bias} for token, bias in request.sampling.logit_bias],
            "grammar": given.get("grammar") or "",
            "samplers": list(SAMPLERS) if given.get("samplers") is None else given["samplers"],
        }
        | NEUTRAL_VALUES
    )
