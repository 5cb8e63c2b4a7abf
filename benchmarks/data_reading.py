"""Reading training samples: how fast they come, and what the index behind them costs.

The corpora are made up in a scratch folder: one of real random tokens to read from, and one of ten million documents
whose tokens are a hole in the file, for the index. Every measurement is a process of its own, on one core; the figure
is the best of the rounds, but the longest of the waits. Run: python benchmarks/data_reading.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from comparison import best_rounds
from report import keep

SEQUENCE, SEED = 1024, 1234
LARGEST_DOCUMENT = 1000
READ_DOCUMENTS, INDEX_DOCUMENTS = 1_000_000, 10_000_000
VOCABULARY, END = 50257, 50256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=None, help="a folder with room for 1.5 GB")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments.folder)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as name:
        folder = Path(name)
        make_corpus(folder / "read", READ_DOCUMENTS, real=True)
        make_corpus(folder / "other", READ_DOCUMENTS // 4, real=True)
        make_corpus(folder / "index", INDEX_DOCUMENTS, real=False)
        best = best_rounds(__file__, CHILDREN, folder, arguments.rounds, ("per_second", "longest_wait"))
    report(best)


def make_corpus(prefix: Path, documents: int, real: bool) -> None:
    """Documents of 1 to LARGEST_DOCUMENT tokens of two bytes, in Megatron-LM's format."""
    generator = np.random.default_rng(documents)
    sizes = generator.integers(1, LARGEST_DOCUMENT + 1, documents, dtype=np.int32)
    ends = np.cumsum(sizes, dtype=np.int64)
    with open(f"{prefix}.idx", "wb") as index:
        index.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, documents, documents + 1))
        for part in (sizes, (ends - sizes) * 2, np.arange(documents + 1)):
            index.write(part.data)
    with open(f"{prefix}.bin", "wb") as tokens:
        if not real:
            tokens.truncate(int(ends[-1]) * 2)
            return
        for begin in range(0, documents, 10_000):
            part = sizes[begin : begin + 10_000]
            chunk = generator.integers(0, END, int(part.sum()), dtype=np.uint16)
            chunk[np.cumsum(part) - 1] = END
            tokens.write(chunk.data)


def build_index(folder: Path) -> dict[str, float]:
    """The first epoch's index, from nothing to a file, with the opening of the corpus."""
    for path in (folder / "index.paddock").glob("*.arrays"):
        path.unlink()
    seconds = open_index(folder)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"build_seconds": seconds["open_seconds"], "build_memory": memory}


def open_index(folder: Path) -> dict[str, float]:
    from paddock.data.cache import cache_beside
    from paddock.data.indexed.reader import IndexedTokens
    from paddock.data.language.epoch_index import EpochIndexes

    started = time.perf_counter()
    corpus = IndexedTokens(folder / "index")
    cache = cache_beside(corpus, folder / "cache")
    index = EpochIndexes(corpus, range(corpus.num_documents), SEQUENCE, SEED, cache).build(0)
    seconds = time.perf_counter() - started
    assert len(index.order) > INDEX_DOCUMENTS and (folder / "index.paddock").is_dir()
    return {"open_seconds": seconds}


def read_samples(folder: Path) -> dict[str, float]:
    from paddock.data.cache import cache_beside
    from paddock.data.indexed.reader import IndexedTokens
    from paddock.data.language.blend import BlendedSamples
    from paddock.data.language.windows import DocumentEnds, TrainingSamples

    def samples(name: str, ends: DocumentEnds | None = None) -> TrainingSamples:
        corpus = IndexedTokens(folder / name)
        cache = cache_beside(corpus, folder / "cache")
        return TrainingSamples(corpus, range(corpus.num_documents), SEQUENCE, SEED, ends=ends, cache=cache)

    def rate(read: Callable[[int], object], count: int = 50_000) -> float:
        read(0)
        started = time.perf_counter()
        for index in range(count):
            read(index)
        return count / (time.perf_counter() - started)

    blend = BlendedSamples([samples("read"), samples("other")], [0.7, 0.3], SEED)
    ends = samples("read", DocumentEnds(END, reset_positions=True, reset_attention=True, mask_loss=True))
    return {
        "samples_per_second": rate(samples("read").__getitem__),
        "blended_per_second": rate(blend.__getitem__),
        "document_ends_per_second": rate(ends.__getitem__),
        **cross_epochs(samples("read")),
    }


def cross_epochs(samples: object) -> dict[str, float]:
    """The longest wait for a sample while the next epoch's index is built and taken into use."""
    from paddock.data.language.windows import TrainingSamples

    assert isinstance(samples, TrainingSamples)
    border = int(samples.samples_per_epoch)
    samples[border - border // 8]
    longest = 0.0
    for index in range(border - border // 8, border + 1000):
        started = time.perf_counter()
        samples[index]
        longest = max(longest, time.perf_counter() - started)
    return {"longest_wait": longest}


def report(best: dict[str, float]) -> None:
    rows = [
        ("samples/s", best["samples_per_second"], "≥ 20000"),
        ("samples/s of a blend", best["blended_per_second"], "≥ 20000"),
        ("samples/s with document ends", best["document_ends_per_second"], ""),
        ("longest wait at an epoch's end, s", best["longest_wait"], ""),
        ("index of 10 M documents, s", best["build_seconds"], "≤ 10"),
        ("its peak memory, MiB", best["build_memory"] / 2**20, "≤ 1024"),
        ("opening corpus and index again, s", best["open_seconds"], "≤ 0.1"),
    ]
    keep(__file__, rows)


CHILDREN: dict[str, Callable[[Path], dict[str, float]]] = {
    "build": build_index,
    "open": open_index,
    "read": read_samples,
}

if __name__ == "__main__":
    main()
