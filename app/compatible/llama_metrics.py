"""The text of llama.cpp's /metrics, for Prometheus.

Source: tools/server/README.md of llama.cpp.
"""


def metrics(totals: list[dict[str, float]], processing: int, deferred: int) -> str:
    """The counters and gauges in Prometheus' text format. `totals`: of each model (Engine.stats()["totals"])."""
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "prompt_ms", "decode_ms", "batches",
             "batch_sequences", "draft_steps")  # fmt: skip
    sums = {name: sum(one[name] for one in totals) for name in names}
    prompt, cached, predicted, prompt_ms, decode_ms, batches, sequences, drafts = (sums[name] for name in names)
    counters = {
        "prompt_tokens_total": prompt - cached,
        "prompt_tokens_cached_total": cached,
        "prompt_seconds_total": prompt_ms / 1000,
        "tokens_predicted_total": predicted,
        "tokens_predicted_seconds_total": decode_ms / 1000,
        "n_decode_total": batches,
        "n_tokens_max": max((one["longest"] for one in totals), default=0),
        "spec_decode_num_drafts_total": drafts,
    }
    gauges = {
        "prompt_tokens_seconds": 1000 * (prompt - cached) / prompt_ms if prompt_ms else 0,
        "predicted_tokens_seconds": 1000 * predicted / decode_ms if decode_ms else 0,
        "requests_processing": processing,
        "requests_deferred": deferred,
        "n_busy_slots_per_decode": sequences / batches if batches else 0,
    }
    lines = []
    for kind, values in (("counter", counters), ("gauge", gauges)):
        for name, value in values.items():
            lines += [f"# HELP llamacpp:{name} {_HELP[name]}", f"# TYPE llamacpp:{name} {kind}"]
            lines.append(f"llamacpp:{name} {value:.10g}")
    return "\n".join(lines) + "\n"


_HELP = {
    "prompt_tokens_total": "Number of prompt tokens processed.",
    "prompt_tokens_cached_total": "Number of prompt tokens found in the KV cache.",
    "prompt_seconds_total": "Prompt process time in seconds.",
    "tokens_predicted_total": "Number of generated tokens.",
    "tokens_predicted_seconds_total": "Generation process time in seconds.",
    "n_decode_total": "Number of batches that the model computed.",
    "n_tokens_max": "Tokens of the longest sequence.",
    "spec_decode_num_drafts_total": "Number of steps that verified drafts.",
    "prompt_tokens_seconds": "Average prompt throughput in tokens/s.",
    "predicted_tokens_seconds": "Average generation throughput in tokens/s.",
    "requests_processing": "Number of requests processing.",
    "requests_deferred": "Number of requests deferred.",
    "n_busy_slots_per_decode": "Average number of sequences of a batch.",
}
