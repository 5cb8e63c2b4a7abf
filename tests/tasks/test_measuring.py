"""LAMBADA and the perplexity of a text, beside transformers' own model, example by example and window by window."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from paddock.config.load import merge
from paddock.config.measuring import for_measure, recipe_of_weights
from paddock.config.recipe import recipe_from_dict
from paddock.data.language.embedded import embedded_documents
from paddock.tasks.measuring import Lambada
from paddock.tasks.registry import build_task
from paddock.tasks.task import Judgement
from paddock.testing.measuring import measure, passages, write_language_model, write_passages

CONTEXT = 48
TEXTS = passages(61)
SOME = "The module\tis called ‘naïve’, and 東京 is a name; \n\n " + embedded_documents()[3][:3000] + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "gpt2")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> tuple[Any, Any]:
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval().double()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def recipe_for(folder: Path, task: str, path: Path, **sections: Any) -> dict[str, Any]:
    recipe = recipe_of_weights(str(folder))
    assert recipe is not None
    return merge(for_measure(recipe, task, str(path)).to_dict(), sections)


def parts(text: str, form: str) -> tuple[str, str]:
    """A passage without its last word, and that, as each form has it."""
    if form == "harness":
        *before, last = text.split(" ")
        context, target = " ".join(before), " " + last
        blanks = len(context) - len(context.rstrip())
        return context.rstrip(), context[len(context) - blanks :] + target
    word = text.split()[-1]
    return text[: text.rfind(word)].rstrip(), " " + word


@torch.no_grad()
def one_by_one(theirs: tuple[Any, Any], form: str) -> list[list[Any]]:
    """Of every passage alone: the log probability of the target, and what greedy decoding writes if that is another."""
    model, tokenizer = theirs
    found = []
    for number, text in enumerate(TEXTS):
        if form == "last_token":
            context, target = (ids := tokenizer(text)["input_ids"])[:-1], ids[-1:]
        else:
            before, word = parts(text, form)
            context = tokenizer(before)["input_ids"]
            target = tokenizer(before + word)["input_ids"][len(context) :]
        total, said = 0.0, []
        for place, token in enumerate(target):
            read = [*context, *target[:place]]
            # What is read of a long text is the end of it, and the same end for all tokens of the target.
            read = read[max(0, len(context) + len(target) - 1 - CONTEXT) :]
            scores = model(torch.tensor([read])).logits[0, -1].log_softmax(-1)
            total += float(scores[token])
            if said == target[:place]:
                said.append(int(scores.argmax()))
        found.append([number, total, None if said == target else said])
    return found


@pytest.mark.parametrize("form", ["strict", "last_token", "harness"])
def test_every_passage_is_judged_as_by_itself(folder: Path, theirs: tuple[Any, Any], tmp_path: Path, form: str) -> None:
    file = write_passages(tmp_path / "passages.jsonl", TEXTS)
    expected = one_by_one(theirs, form)
    right = sum(said is None for _, _, said in expected)
    assert 5 < right < len(TEXTS) - 5, "there is something to tell apart"
    recipes = [
        recipe_for(folder, "lambada", file, data={"form": form, "tokens_at_once": tokens}) for tokens in (1, 100, 8192)
    ]
    for metrics, records in measure(0, recipes):
        ours = sorted(records)
        assert [(number, said) for number, _, said in ours] == [(number, said) for number, _, said in expected]
        wanted = [total for _, total, _ in expected]
        assert [total for _, total, _ in ours] == pytest.approx(wanted, rel=1e-5)
        assert metrics["lambada_accuracy"] == right / len(TEXTS)
        assert metrics["lambada_perplexity"] == pytest.approx(math.exp(-sum(wanted) / len(TEXTS)), rel=1e-5)
        assert metrics["loss"] == pytest.approx(-sum(wanted) / len(TEXTS), rel=1e-6)
        assert 0 < metrics["truncated"] < len(TEXTS)


def test_the_forms_differ_where_they_should() -> None:
    targets = {form: {parts(text, form) for text in TEXTS} for form in ("strict", "harness")}
    assert targets["strict"] != targets["harness"], "a line break before a last word"


def test_only_what_is_asked_for_is_scored(folder: Path, tmp_path: Path) -> None:
    """The head sees the places of the last words, and nothing else."""
    file = write_passages(tmp_path / "passages.jsonl", TEXTS)
    task = build_task(recipe_from_dict(merge(recipe_for(folder, "lambada", file), tokenizer_of(folder))))
    samples = task.validation_samples()
    batch = task.collate([samples[number] for number in range(20)])
    assert batch["labels"].shape == batch["places"].shape and batch["places"].shape[1] < 10 < batch["tokens"].shape[1]


def tokenizer_of(folder: Path) -> dict[str, Any]:
    return {"tokenizer": {"kind": "file", "path": str(folder / "tokenizer.json")}}


def test_what_is_said_of_lambada(folder: Path, tmp_path: Path) -> None:
    file = write_passages(
        tmp_path / "passages.jsonl", ["one two three", "the list value value", "a long " + "x " * 60 + "end"]
    )
    task = build_task(recipe_from_dict(merge(recipe_for(folder, "lambada", file), tokenizer_of(folder))))
    assert isinstance(task, Lambada) and task.judges_labels
    assert task.notes() == ["1 of 3 passages are longer than 48 tokens, and lose their beginning"]
    found = Judgement({}, [[1, -1.5, None], [2, -2.0, [70]], [0, -0.25, [5, 6]]])
    metrics = task.metrics(found)
    assert task.summary(metrics) == (
        "validation results on LAMBADA | number correct: 1.0000E+00 | total examples: 3.0000E+00 | "
        "avg accuracy: 3.3333E-01"
    )
    first, second = task.missed(found)
    assert first["line"] == 1 and first["context"] == "one two" and first["expected"] == " three"
    assert second["line"] == 3 and second["context"].endswith("x x") and second["log_probability"] == -2.0


@torch.no_grad()
def strided(theirs: tuple[Any, Any], text: str, stride: int) -> tuple[float, int]:
    """As in transformers' documentation on perplexity; only that the loss of a window is weighted by the labels it is
    the mean of. (The documentation subtracts one label of every window, where the shift takes one from the first.)"""
    model, tokenizer = theirs
    encodings = tokenizer(text, return_tensors="pt")
    seq_len = encodings.input_ids.size(1)
    nll_sum, n_tokens, prev_end_loc = 0.0, 0, 0
    for begin_loc in range(0, seq_len, stride):
        end_loc = min(begin_loc + CONTEXT, seq_len)
        trg_len = end_loc - prev_end_loc
        input_ids = encodings.input_ids[:, begin_loc:end_loc]
        target_ids = input_ids.clone()
        target_ids[:, :-trg_len] = -100
        num_loss_tokens = int((target_ids[:, 1:] != -100).sum())
        nll_sum += float(model(input_ids, labels=target_ids).loss) * num_loss_tokens
        n_tokens += num_loss_tokens
        prev_end_loc = end_loc
        if end_loc == seq_len:
            break
    return nll_sum, n_tokens


@pytest.mark.parametrize("stride", [1, 16, 24, CONTEXT - 1])
def test_the_strided_perplexity_of_a_text_is_that_of_transformers(
    folder: Path, theirs: tuple[Any, Any], tmp_path: Path, stride: int
) -> None:
    text = SOME if stride > 1 else SOME[:500]
    (tmp_path / "text.txt").write_bytes(text.encode())
    total, count = strided(theirs, text, stride)
    recipe = recipe_for(folder, "text_perplexity", tmp_path / "text.txt", evaluate={"stride": stride})
    ((metrics, _),) = measure(0, [recipe])
    assert count == len(theirs[1](text)["input_ids"]) - 1, "every token but the first"
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-6)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)


def test_words_bytes_and_characters(folder: Path, theirs: tuple[Any, Any], tmp_path: Path) -> None:
    """By lm-eval's definitions, of the text as it is in the file."""
    (tmp_path / "text.txt").write_bytes(SOME.encode())
    ((metrics, _),) = measure(0, [recipe_for(folder, "text_perplexity", tmp_path / "text.txt")])
    total = metrics["loss"] * (len(theirs[1](SOME)["input_ids"]) - 1)
    assert metrics["word_perplexity"] == pytest.approx(math.exp(total / len(re.split(r"\s+", SOME))))
    assert metrics["byte_perplexity"] == pytest.approx(math.exp(total / len(SOME.encode())))
    assert metrics["bits_per_byte"] == pytest.approx(total / len(SOME.encode()) / math.log(2))
    assert metrics["bits_per_character"] == pytest.approx(total / len(SOME) / math.log(2))
    assert len(SOME) < len(SOME.encode())


def test_a_mark_at_the_beginning_of_a_file_is_no_text(folder: Path, tmp_path: Path) -> None:
    for name, begins in (("plain.txt", b""), ("marked.txt", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(begins + SOME.encode())
    names = ("plain.txt", "marked.txt")
    (plain, _), (marked, _) = measure(0, [recipe_for(folder, "text_perplexity", tmp_path / name) for name in names])
    assert plain == marked
