"""What an encoder-decoder model writes, against transformers' own, greedily and by beams; and that sources do not
disturb each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.errors import ConfigError
from paddock.inference.generation.decoder import Decoder, Room
from paddock.inference.generation.generate import generate
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.requests import Event, Request
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5

CONFIG = T5Config(hidden=32, layers=2, heads=4, head_size=8, feed_forward=48, vocab=61, dropout=0.3, max_distance=20)
SOURCES = [[5, 1], [7, 3, 9, 1], list(range(2, 38)), [9, 9, 2, 1], [60, 0, 13, 4, 4, 8, 1], [8, 0, 0, 8, 1]]
GREEDY = GenerationOptions(max_new_tokens=24, stop_token=1)
SAMPLED = GenerationOptions(max_new_tokens=20, temperature=4.0, top_k=40, top_p=0.97, seed=4)


@pytest.fixture(scope="module")
def model() -> T5:
    model = T5(CONFIG)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large enough that the source decides, and small enough that the end token comes now and then.
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.1 if "norm" in name else 0.45, generator=generator)
    return model


@pytest.fixture(scope="module")
def theirs(model: T5, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = Path(tmp_path_factory.mktemp("export")) / "model"
    save_folder(model.state_dict(), CONFIG, place)
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(place).eval()


def written(theirs: Any, source: list[int], **settings: Any) -> list[list[int]]:
    """What transformers writes about one source, without the start and the end token."""
    tokens = torch.tensor([source])
    settings = {"do_sample": False, "eos_token_id": 1, "pad_token_id": 0, "max_new_tokens": 24, **settings}
    found = theirs.generate(tokens, attention_mask=torch.ones_like(tokens), **settings).tolist()
    return [row[1 : row.index(1) if 1 in row else len(row)] for row in found]


def test_greedy_is_that_of_transformers(model: T5, theirs: Any) -> None:
    results = generate(model, SOURCES, GREEDY)
    assert results == [written(theirs, source)[0] for source in SOURCES]
    assert len({tuple(result) for result in results}) > 3, "the model is too dull to tell anything"


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 2},
        {"num_beams": 4, "num_return_sequences": 3, "early_stopping": True},
        {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": "never"},
        {"num_beams": 3, "length_penalty": -0.5, "early_stopping": "never"},
        {"num_beams": 5, "no_repeat_ngram_size": 2},
        {"num_beams": 1, "no_repeat_ngram_size": 3},
        {"num_beams": 20, "num_return_sequences": 20, "length_penalty": 0.0},
    ],
)
@pytest.mark.parametrize("stop", [1, 17])
def test_beams_are_those_of_transformers(model: T5, theirs: Any, settings: dict[str, Any], stop: int) -> None:
    results = generate(model, SOURCES, replace(GREEDY, **settings, stop_token=stop))
    expected = []
    for source in SOURCES:
        tokens = torch.tensor([source])
        found = theirs.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=24, do_sample=False, eos_token_id=stop,
            pad_token_id=0, **settings,
        ).tolist()  # fmt: skip
        expected += [row[1 : row.index(stop, 1) if stop in row[1:] else len(row)] for row in found]
    # A sequence that ended before others is padded with zeros, which ours never are.
    assert [trim(row) for row in results] == [trim(row) for row in expected]


def trim(row: list[int]) -> list[int]:
    while row and row[-1] == 0:
        row = row[:-1]
    return row


def test_sources_do_not_disturb_each_other(model: T5) -> None:
    for options in (GREEDY, SAMPLED, replace(GREEDY, num_beams=3), replace(SAMPLED, num_return_sequences=2)):
        together = generate(model, SOURCES, options)
        copies = options.num_return_sequences
        model_slots = [
            Generator(Decoder(model, Room(slots, 24, 40, groups))) for slots, groups in ((3, 1), (4, 1), (3, 2))
        ]
        for generator in model_slots:
            model.eval()
            assert collect(generator, options) == together
        others = [*SOURCES[:2], [4, 4], *SOURCES[3:]]
        apart = generate(model, others, options)
        assert apart[: 2 * copies] == together[: 2 * copies] and apart[3 * copies :] == together[3 * copies :]


def collect(generator: Generator, options: GenerationOptions) -> list[list[int]]:
    """What a loop with few slots writes, requests entering as others leave."""
    options = options.with_temperature(continues=False)
    copies = options.num_return_sequences
    results: list[list[int]] = [[] for _ in range(len(SOURCES) * copies)]
    for number, source in enumerate(SOURCES):
        assert generator.add(Request(source, options, number)) == number
    while generator.busy:
        for event in generator.step():
            results[event.request * copies + event.sequence] += event.tokens
    return results


def test_a_request_can_be_cancelled(model: T5) -> None:
    model.eval()
    alone = generate(model, SOURCES, GREEDY)
    generator = Generator(Decoder(model, Room(3, 24, 40)))
    ids = [generator.add(Request(source, GREEDY.with_temperature(continues=False))) for source in SOURCES]
    events: list[Event] = []
    for step in range(100):
        if step == 3:
            generator.cancel(ids[0])  # is being written
            generator.cancel(ids[4])  # waits
        if not generator.busy:
            break
        events += generator.step()
    for number, id in enumerate(ids):
        tokens = [token for event in events if event.request == id for token in event.tokens]
        if number == 0:
            assert tokens == alone[0][:3]
        else:
            assert tokens == ([] if number == 4 else alone[number])
    ended = [event.request for event in events if event.ended]
    assert sorted(ended) == [ids[number] for number in (1, 2, 3, 5)]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_beams": 62}, "num_beams"),
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"num_beams": 2, "temperature": 0.7}, "temperature"),
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"num_beams": 2, "length_penalty": float("nan")}, "length_penalty"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size"),
        ({"stop_token": 61}, "stop_token"),
    ],
)
def test_what_cannot_be_is_refused(model: T5, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        generate(model, SOURCES, replace(GREEDY, **changes))


def test_an_empty_source_is_refused(model: T5) -> None:
    with pytest.raises(ConfigError, match="empty"):
        generate(model, [[5, 1], []], GREEDY)


@pytest.mark.parametrize(
    ("length", "changes", "match"),
    [
        (41, {}, r"41 tokens(.|\n)*room for 40"),
        (40, {"max_new_tokens": 25}, r"max_new_tokens 25(.|\n)*room for 25(.|\n)*has 24(.|\n)*1 fewer"),
        (40, {"num_beams": 4}, r"4 sequences(.|\n)*3 slots"),
        (40, {"num_return_sequences": 4}, r"4 sequences(.|\n)*3 slots"),
        (0, {}, "empty"),
    ],
)
def test_a_request_that_no_slot_has_room_for(model: T5, length: int, changes: dict[str, Any], match: str) -> None:
    model.eval()
    generator = Generator(Decoder(model, Room(3, 24, 40)))
    with pytest.raises(ConfigError, match=match):
        generator.add(Request([5] * length, replace(GREEDY, **changes)))
    assert not generator.busy
    # One that just fits is written, to its end.
    most = replace(GREEDY, max_new_tokens=24, stop_token=None).with_temperature(continues=False)
    assert generator.add(Request([5] * 40, most)) == 0
    written: list[int] = []
    while generator.busy:
        written += [token for event in generator.step() for token in event.tokens]
    assert [written] == generate(model, [[5] * 40], most)
