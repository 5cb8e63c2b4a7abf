"""SQuAD to features, beside the usual way: transformers' fast tokenizer over pairs of question and context.

Both read the file, encode all questions with windows of 384 tokens (stride 128) and find the answers' tokens; ours also
checks every question and keeps what it makes in a file. The usual way is that of the example scripts, in batches of
1000 pairs, on the same threads. Rounds alternate, and the figure of each is its fastest round. Rows are compared. Run:

python benchmarks/squad_features.py --squad dev-v1.1.json --vocab vocab.txt [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import keep
from transformers import BertTokenizerFast

from paddock.data.config import TokenizerConfig
from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.questions.features import QuestionFeatures, QuestionFile, load_features
from paddock.data.tokenizers.load import text_tokenizer

Row = tuple[list[int], int, int]
"""A row's tokens, and where its answer begins and ends."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    squad, vocab = arguments.squad, arguments.vocab
    with tempfile.TemporaryDirectory() as cache:
        compare(load(squad, vocab, cache), theirs(squad, vocab))
        settings: dict[str, Callable[[], object]] = {
            "paddock": lambda: ours(squad, vocab),
            "paddock, found again": lambda: load(squad, vocab, cache),
            "transformers": lambda: theirs(squad, vocab),
        }
        best = dict.fromkeys(settings, float("inf"))
        for _ in range(arguments.rounds):
            for name, run in settings.items():
                started = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - started)
    questions = count(squad)
    speeds = {name: questions / seconds for name, seconds in best.items()}
    rows = [(f"{name}, questions/s", speed, "≥ 2000" if name == "paddock" else "") for name, speed in speeds.items()]
    rows += [(f"{name} ÷ transformers", speed / speeds["transformers"], "") for name, speed in speeds.items()]
    keep(__file__, rows)


def ours(squad: Path, vocab: Path) -> None:
    """All rows, made anew."""
    with tempfile.TemporaryDirectory() as cache:
        load(squad, vocab, cache)


def load(squad: Path, vocab: Path, cache: str) -> QuestionFeatures:
    """All rows, made or found in a cache."""
    data = QuestionAnsweringData(validation=str(squad), cache=cache)
    wordpiece = TokenizerConfig(kind="wordpiece", vocab=str(vocab), lower_case=True)
    return load_features(QuestionFile.read(data, "validation"), text_tokenizer(data, wordpiece, 2**20, list), data)


def theirs(squad: Path, vocab: Path) -> list[Row]:
    """As the example scripts do it, though with the question cut to 64 tokens by nobody: none is longer here."""
    tokenizer = BertTokenizerFast(str(vocab), do_lower_case=True)
    contexts, questions, answers = [], [], []
    for article in json.loads(squad.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                contexts.append(paragraph["context"])
                questions.append(entry["question"])
                answers.append(entry["answers"][0])
    rows: list[Row] = []
    for first in range(0, len(questions), 1000):
        part = slice(first, first + 1000)
        encoded = tokenizer(
            questions[part],
            contexts[part],
            truncation="only_second",
            max_length=384,
            stride=128,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for index, offsets in enumerate(encoded["offset_mapping"]):
            answer = answers[first + encoded["overflow_to_sample_mapping"][index]]
            rows.append((encoded["input_ids"][index], *_place(answer, offsets, encoded.sequence_ids(index))))
    return rows


def _place(answer: dict[str, object], offsets: list[tuple[int, int]], parts: list[int | None]) -> tuple[int, int]:
    """The tokens of an answer in a row; 0 and 0 if it is not there."""
    start = int(str(answer["answer_start"]))
    end = start + len(str(answer["text"]))
    first = parts.index(1)
    last = len(parts) - 1 - parts[::-1].index(1)
    if offsets[first][0] > start or offsets[last][1] < end:
        return 0, 0
    while first <= last and offsets[first][0] <= start:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def compare(features: QuestionFeatures, rows: list[Row]) -> None:
    """All rows are the same; answers too, but for some that begin or end inside a token."""
    assert len(features) == len(rows), f"{len(features)} rows and {len(rows)}"
    others = 0
    for index, (tokens, first, last) in enumerate(rows):
        found, _, answer = features.row(index)
        assert found.tolist() == tokens, f"row {index} differs"
        others += answer.tolist() != [first, last]
    print(f"{len(rows)} rows are equal; {others} have another answer", file=sys.stderr)


def count(squad: Path) -> int:
    articles = json.loads(squad.read_text(encoding="utf-8"))["data"]
    return sum(len(paragraph["qas"]) for article in articles for paragraph in article["paragraphs"])


if __name__ == "__main__":
    main()
