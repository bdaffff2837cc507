"""Numbers that Python, the kernels and replay.js share. Each is defined here alone.

Kernels get them as `#param` (kernels.expand gives KERNEL_PARAMS to every kernel), replay.js as an argument.
"""

MAX_SMALL_BATCH = 8  # tokens of a small batch, which have a State each; sequences that run side by side
MAX_STEPS = 64  # tokens of each sequence in one submit
MOST_LOGPROBS = 20  # likeliest tokens whose log-probabilities are returned (OpenAI's limit)
LOGPROB_ROWS = 512  # positions whose log-probabilities are held until read; more than are submitted ahead
MAX_MATCH = 8  # tokens; a longer match does not rank a draft's source higher
BANNED = -1e30  # the logit of a token that cannot be sampled
THREADS = 64  # of a workgroup of an elementwise kernel

KERNEL_PARAMS: dict[str, int | float | str] = {
    "MAX_SMALL_BATCH": MAX_SMALL_BATCH,
    "MAX_MATCH": MAX_MATCH,
    "BANNED": BANNED,
    "THREADS": THREADS,
}
