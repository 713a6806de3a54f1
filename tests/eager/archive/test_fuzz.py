"""Mutated files give an error of weft or data, and nothing else."""

import resource
from pathlib import Path

import pytest
from archive_fuzz import fuzz, run_one, seeds


def test_the_seeds_are_good_files():
    corpus, good = seeds()
    assert {kind for kind, _ in corpus} == {"zip", "pickle", "legacy", "safetensors"}
    for kind, data in corpus:
        run_one(kind, data, good)


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), hard))
    try:
        assert fuzz(count=400, seed=seed)[0] == 400
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.slow
def test_mutations_that_reach_new_lines():
    _, corpus = fuzz(count=3000, seed=99, trace=True)
    assert corpus > 5
