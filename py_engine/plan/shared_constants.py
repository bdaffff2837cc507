"""Numbers that Python, the kernels and replay.js share. Each is defined only here.

Kernels get them as `#param` (kernels.expand passes KERNEL_PARAMS to every kernel), replay.js as an argument.
"""

MAX_SMALL_BATCH = 32  # tokens of a small batch in any plan, each with its own State; a plan's own: Plan.max_small_batch
SHORT_BATCH = 8  # rows of a step with drafts, and tokens of one sequence that a small batch reads
MAX_SEQUENCES = 32  # sequences that run concurrently
MAX_STEPS = 64  # tokens of each sequence in one submit
MAX_LOGPROBS = 20  # most probable tokens whose log-probabilities are returned (OpenAI's limit)
LOGPROB_ROW_BYTES = 8 * (1 + MAX_LOGPROBS)  # u32 token and f32 log-probability of each
LOGPROB_ROWS = 512  # positions whose log-probabilities are held until read; more than steps in flight
MAX_MATCH = 8  # tokens; a longer match does not rank a draft's source higher
MAX_BIASES = 16384  # tokens of a request's logit_bias
BUCKETS = 1024  # of the histogram of a row's logits
BANNED = -1e30  # the logit of a token that cannot be sampled
LEAST_TEMPERATURE = 1e-6  # a lower dynamic one is 0: logits divided by it would overflow
STAGED_GROUPS = 64  # of 32 columns of each token that small batches load into workgroup memory at a time
THREADS = 64  # of a workgroup of an elementwise kernel
MOST_DISTANCE = 128  # positions that T5's biases tell apart; farther ones have the last bucket
MAX_EXPERT_GROUPS = 64  # of a mixture of experts
FIRST_MEDIA_ID = 1 << 31  # ids from here on stand for embeddings of pictures and sounds (media.py)

KERNEL_PARAMS: dict[str, int | float | str] = {
    "MAX_SMALL_BATCH": MAX_SMALL_BATCH,
    "SHORT_BATCH": SHORT_BATCH,
    "MAX_SEQUENCES": MAX_SEQUENCES,
    "MAX_MATCH": MAX_MATCH,
    "MAX_BIASES": MAX_BIASES,
    "BUCKETS": BUCKETS,
    "BANNED": BANNED,
    "LEAST_TEMPERATURE": LEAST_TEMPERATURE,
    "STAGED_GROUPS": STAGED_GROUPS,
    "THREADS": THREADS,
    "MOST_DISTANCE": MOST_DISTANCE,
    "FIRST_MEDIA_ID": FIRST_MEDIA_ID,
}
