"""Endpoints that only llama.cpp's server has: requests to /completion and its answers, and the text of /metrics.

Source: tools/server/README.md of llama.cpp.
"""

from app.openai.answers import Identity
from app.openai.converted import Converted, Emit
from app.openai.fields import Body, Json, boolean, unsupported, whole, wrong_type, wrong_value
from app.openai.requests import completion_request
from app.openai.sampling import NAMES as SAMPLING

_DEFAULTS: Body = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
_PASSED_ON = SAMPLING | {"model", "prompt", "stop", "ignore_eos", "cache_prompt", "grammar", "json_schema", "lora"}
_NO_EFFECT = frozenset(["id_slot", "n_keep", "t_max_predict_ms", "timings_per_token", "return_progress", "samplers"])
_KNOWN = _PASSED_ON | _NO_EFFECT | {"n_predict", "max_tokens", "stream", "return_tokens"}
_STOP_TYPES = {"stop": "eos", "length": "limit"}


def completion(body: Json) -> Converted:
    """Check a request to /completion: one prompt, as text, token ids, or text with media."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name not in _KNOWN and value is not None and (name, value) != ("mirostat", 0):
            raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    if boolean(body, "return_tokens") or (whole(body.get("n_probs")) or 0) > 0:
        raise unsupported("Tokens and their probabilities are answered by /v1/completions.", "return_tokens")
    request = _DEFAULTS | {name: value for name, value in body.items() if name in _PASSED_ON and value is not None}
    limit = body.get("n_predict", body.get("max_tokens"))
    found = -1 if limit is None else whole(limit)
    if found is None:
        raise wrong_type("n_predict", "an integer", limit)
    if found == 0:
        raise wrong_value("n_predict is 0; give at least 1 token, or -1 for no limit.", "n_predict")
    request["max_tokens"] = found if found > 0 else (1 << 31) - 1  # -1: until the answer ends
    request |= {"stream": True, "stream_options": {"include_usage": True}}
    made = completion_request(request)
    if len(made.prompts) > 1:
        raise unsupported("Give one prompt; /v1/completions takes several.", "prompt")
    return Converted(body, made, boolean(body, "stream"), Completion)


class Completion:
    """A builder of an answer of /completion from a completion's chunks."""

    def __init__(self, model: str, emit: Emit | None, identity: Identity) -> None:
        self._model, self._emit, self._text = model, emit, ""
        self._end: dict[str, Json] = {}
        self.body: dict[str, Json] = {}

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk."""
        for choice in chunk["choices"]:
            if choice["text"]:
                self._text += choice["text"]
                self._send({"index": 0, "content": choice["text"], "stop": False})
            if choice["finish_reason"]:
                word = choice.get("stop_reason")
                kind = "word" if word is not None else _STOP_TYPES[choice["finish_reason"]]
                self._end = {"stop_type": kind, "stopping_word": word or ""}
        if "usage" not in chunk:
            return
        usage = chunk["usage"]
        self.body = {
            "index": 0,
            "content": self._text,
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage["completion_tokens"],
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": usage["prompt_tokens_details"]["cached_tokens"],
            "truncated": bool(usage["prompt_tokens_details"].get("truncated_tokens")),
            **self._end,
            "timings": chunk["timings"],
        }
        self._send(self.body | {"content": ""})

    def _send(self, fields: dict[str, Json]) -> None:
        if self._emit is not None:
            self._emit(fields)


def metrics(totals: list[dict[str, float]], processing: int, deferred: int) -> str:
    """The counters and gauges in Prometheus' text format. `totals`: of each model (Engine.stats()["totals"])."""
    prompt, cached, predicted, prompt_ms, decode_ms = (
        sum(one[name] for one in totals)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "prompt_ms", "decode_ms")
    )
    counters = {
        "prompt_tokens_total": prompt - cached,
        "prompt_seconds_total": prompt_ms / 1000,
        "tokens_predicted_total": predicted,
        "tokens_predicted_seconds_total": decode_ms / 1000,
    }
    gauges = {
        "prompt_tokens_seconds": 1000 * (prompt - cached) / prompt_ms if prompt_ms else 0,
        "predicted_tokens_seconds": 1000 * predicted / decode_ms if decode_ms else 0,
        "requests_processing": processing,
        "requests_deferred": deferred,
    }
    lines = []
    for kind, values in (("counter", counters), ("gauge", gauges)):
        for name, value in values.items():
            lines += [f"# HELP llamacpp:{name} {_HELP[name]}", f"# TYPE llamacpp:{name} {kind}"]
            lines.append(f"llamacpp:{name} {value:.10g}")
    return "\n".join(lines) + "\n"


_HELP = {
    "prompt_tokens_total": "Number of prompt tokens processed.",
    "prompt_seconds_total": "Prompt process time in seconds.",
    "tokens_predicted_total": "Number of generated tokens.",
    "tokens_predicted_seconds_total": "Generation process time in seconds.",
    "prompt_tokens_seconds": "Average prompt throughput in tokens/s.",
    "predicted_tokens_seconds": "Average generation throughput in tokens/s.",
    "requests_processing": "Number of requests processing.",
    "requests_deferred": "Number of requests deferred.",
}
