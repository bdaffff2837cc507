"""Run the fuzzers: nothing but clean errors, no case over 2 s of the processor or 200 MB.

WISP_FUZZ_CASES is the number of cases of each, WISP_FUZZ_SEED the first seed. A failure names the seed of its case.
"""

import os
import resource
import time
from random import Random
from types import ModuleType

import pytest

from tests.fuzz import (
    call_streams,
    constraints,
    endpoints,
    files,
    headers,
    http,
    json_texts,
    relayed,
    requests,
    templates,
    upstream_chunks,
    vocabularies,
    web_sockets,
    whole_files,
)

CASES = os.environ.get("WISP_FUZZ_CASES")
SEED = int(os.environ.get("WISP_FUZZ_SEED", "1"))
MAX_S, MAX_MB = 2.0, 200
FUZZERS = {  # cases of a usual run
    call_streams: 200, constraints: 30, endpoints: 500, files: 200, headers: 40, http: 60, json_texts: 200,
    relayed: 60, requests: 1000, templates: 60, upstream_chunks: 1000, vocabularies: 150, web_sockets: 60,
    whole_files: 60,
}  # fmt: skip


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.timeout(0)
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_nothing_but_clean_errors(fuzzer: ModuleType) -> None:
    slowest, largest = (0.0, 0), (0.0, 0)
    for seed in range(SEED, SEED + int(CASES or FUZZERS[fuzzer])):
        case = fuzzer.case(Random(seed))
        before, started = peak_mb(), time.process_time()
        try:
            fuzzer.run(case)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r} for {case!r:.2000}") from error
        slowest = max(slowest, (time.process_time() - started, seed))
        largest = max(largest, (peak_mb() - before, seed))
        assert slowest[0] < MAX_S, f"seed {slowest[1]} took {slowest[0]:.1f} s: {case!r:.2000}"
        assert largest[0] < MAX_MB, f"seed {largest[1]} took {largest[0]:.0f} MB: {case!r:.2000}"
    print(f"slowest: {slowest[0]:.2f} s (seed {slowest[1]}); most memory: {largest[0]:.0f} MB (seed {largest[1]})")
