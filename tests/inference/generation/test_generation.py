"""Generation against transformers' own, token by token; and that prompts do not disturb each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.errors import ConfigError, DataError, NumericsError, UserError
from paddock.inference.generation import generator as generator_module
from paddock.inference.generation.decoder import Decoder, Room
from paddock.inference.generation.generate import Limits, generate, room_for, write
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.requests import Event, Request
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.cache import KeyValueCache

CONFIG = GPT2Config(hidden=32, layers=2, heads=4, vocab=61, context=40, dropout=0.3)
PROMPTS = [[5], [7, 3, 9], [1, 2, 3, 4, 5, 6, 7, 8], [9, 9, 2], [60, 0, 13], [8, 0, 0, 8, 1, 1, 30, 31]]
GREEDY = GenerationOptions(max_new_tokens=30, temperature=0)
GREEDY_STOP = 30
SAMPLED = GenerationOptions(max_new_tokens=20, temperature=6.0, top_k=40, top_p=0.97, seed=4)


@pytest.fixture(scope="module")
def model() -> GPT2:
    model = GPT2(CONFIG)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            # Large matrices and small biases: the context decides, not one favourite token.
            parameter.normal_(0.0, 0.7 if parameter.dim() > 1 else 0.1, generator=generator)
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter += 1.0
    return model


@pytest.fixture(scope="module")
def theirs(model: GPT2, tmp_path_factory: pytest.TempPathFactory) -> transformers.GPT2LMHeadModel:
    place = Path(tmp_path_factory.mktemp("export")) / "model"
    save_folder(model.state_dict(), CONFIG, place)
    return transformers.GPT2LMHeadModel.from_pretrained(place).eval()


def written(
    theirs: transformers.GPT2LMHeadModel, prompt: list[int], stop: int | None, most: int, **how: Any
) -> list[list[int]]:
    """What they write behind a prompt, filled up to the longest."""
    tokens = torch.tensor([prompt])
    given = {"attention_mask": torch.ones_like(tokens), "eos_token_id": stop, "pad_token_id": 0}
    found = theirs.generate(tokens, max_new_tokens=most, do_sample=False, **given, **how)
    rows: list[list[int]] = found[:, len(prompt) :].tolist()
    return rows


def continued(theirs: transformers.GPT2LMHeadModel, prompt: list[int], stop: int | None) -> list[int]:
    (new,) = written(theirs, prompt, stop, 30)
    return new[:-1] if new[-1] == stop else new


def test_greedy_is_that_of_transformers(model: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    results = generate(model, PROMPTS, GREEDY)
    assert results == [continued(theirs, prompt, None) for prompt in PROMPTS]
    assert len({tuple(result) for result in results}) > 3, "the model is too dull to tell anything"


def test_stop_token_is_that_of_transformers(model: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    stop = generate(model, PROMPTS, GREEDY)[1][4]
    results = generate(model, PROMPTS, GenerationOptions(max_new_tokens=30, temperature=0, stop_token=stop))
    assert results == [continued(theirs, prompt, stop) for prompt in PROMPTS]
    assert len({len(result) for result in results}) > 1, "all stopped at once: nothing was tested"


def test_samples_depend_on_the_seed_alone(model: GPT2) -> None:
    first = generate(model, PROMPTS, SAMPLED)
    torch.manual_seed(77)
    torch.rand(5)
    assert generate(model, PROMPTS, SAMPLED) == first
    other = generate(model, PROMPTS, GenerationOptions(**{**vars(SAMPLED), "seed": 5}))
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_prompts_do_not_disturb_each_other(model: GPT2) -> None:
    together = generate(model, PROMPTS, SAMPLED)
    others = [*PROMPTS[:3], [4, 4, 4], *PROMPTS[4:], [1], [2, 2, 2]]
    apart = generate(model, others, SAMPLED)
    assert [apart[n] for n in (0, 1, 2, 4, 5)] == [together[n] for n in (0, 1, 2, 4, 5)]
    assert generate(model, PROMPTS, SAMPLED, limits=Limits(sequences=1)) == together
    two = 2 * KeyValueCache(model, 1, 8 + SAMPLED.max_new_tokens - 1).num_bytes
    limits = Limits(cache_bytes=two)
    assert room_for(model, PROMPTS, SAMPLED, limits).slots == 2
    assert generate(model, PROMPTS, SAMPLED, limits=limits) == together


@given(
    prompts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=7),
    slots=st.integers(2, 5),
    groups=st.integers(1, 3),
    chunk=st.integers(1, 16),
    how=st.sampled_from(["greedy", "sampled", "copies", "beams"]),
)
@settings(max_examples=30, deadline=None)
def test_a_batch_is_its_prompts_one_by_one(
    model: GPT2, prompts: list[list[int]], slots: int, groups: int, chunk: int, how: str
) -> None:
    """Whatever else is there, however prompts are cut into chunks, and in whichever group of slots they are written."""
    options = GenerationOptions(max_new_tokens=6, temperature=0, stop_token=3)
    options = {
        "greedy": options,
        "sampled": replace(options, temperature=2.0, top_k=20, seed=9),
        "copies": replace(options, temperature=2.0, seed=9, num_return_sequences=2),
        "beams": replace(options, num_beams=2),
    }[how]
    model.eval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator_module, "CHUNK", chunk)
        generator = Generator(Decoder(model, Room(slots, 26, groups=groups)))
        together = write(generator, prompts, options)
    copies, alone = options.num_return_sequences, []
    for number, prompt in enumerate(prompts):
        alone += write(Generator(Decoder(model, Room(copies + 1, 26))), [prompt], options, numbers=[number])
    assert together == alone


def test_a_long_prompt_does_not_keep_the_others_waiting(model: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_module, "CHUNK", 4)
    generator = Generator(Decoder(model.eval(), Room(2, 40)))
    first = generator.add(Request([5], GREEDY))
    generator.step()
    second = generator.add(Request([7] * 17, replace(GREEDY, max_new_tokens=5)))
    heard = [[event.request for event in generator.step()] for _ in range(5)]
    assert heard == [[first]] * 4 + [[first, second]], (
        "17 tokens are read in five steps, in each of which the other goes on"
    )


def test_those_that_stop_do_not_disturb_the_others(model: GPT2) -> None:
    free = generate(model, PROMPTS, SAMPLED)
    uneven = 0
    for stop in set(free[1][:8]):
        results = generate(model, PROMPTS, GenerationOptions(**{**vars(SAMPLED), "stop_token": stop}))
        assert results == [result[: result.index(stop)] if stop in result else result for result in free]
        uneven += len({len(results[number]) for number in (1, 3, 4)}) > 1
    assert uneven, "of a batch, some are to end before others"


def test_equal_prompts_are_sampled_apart(model: GPT2) -> None:
    first, second = generate(model, [[7, 3], [7, 3]], SAMPLED)
    assert first != second


def test_several_continuations(model: GPT2) -> None:
    options = GenerationOptions(**{**vars(SAMPLED), "num_return_sequences": 3})
    results = generate(model, PROMPTS, options)
    assert len(results) == 3 * len(PROMPTS)
    assert results[::3] == generate(model, PROMPTS, SAMPLED), "the first is what there would be alone"
    assert len({tuple(result) for result in results}) == len(results)


def test_tokens_arrive_as_they_are_chosen(model: GPT2) -> None:
    seen: list[tuple[int, int]] = []
    results = generate(model, PROMPTS, GREEDY, on_token=lambda sequence, token: seen.append((sequence, token)))
    for number, result in enumerate(results):
        assert [token for sequence, token in seen if sequence == number] == result
    assert sorted(sequence for sequence, _ in seen[:6]) == list(range(6)), "all of them at once, in turn"


def test_the_context_can_be_filled(model: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    prompt = list(range(10))
    assert generate(model, [prompt], GREEDY) == [continued(theirs, prompt, None)]
    prompt = list(range(39))
    with torch.no_grad():
        best = theirs(torch.tensor([prompt])).logits[0, -1].argmax().item()
    assert generate(model, [prompt], GenerationOptions(max_new_tokens=1, temperature=0)) == [[best]]


def test_the_mode_is_restored(model: GPT2) -> None:
    model.train()
    model.final_norm.eval()
    generate(model, [[1]], GREEDY)
    assert model.training and model.layers["0"].training and not model.final_norm.training
    with pytest.raises(RuntimeError, match="enough"):
        generate(model, [[1]], GREEDY, on_token=_enough)
    assert model.training and not model.final_norm.training
    model.eval()
    generate(model, [[1]], GREEDY)
    assert not any(module.training for module in model.modules())


def _enough(sequence: int, token: int) -> None:
    raise RuntimeError("enough")


@pytest.mark.parametrize(
    ("prompts", "changes", "kind", "words"),
    [
        ([[1], []], {}, ConfigError, ["prompt 2 of 2 is empty", "ends a text"]),
        ([[1] * 40], {}, ConfigError, ["40 tokens", "context is 40", "at most 39"]),
        ([[1] * 20], {"max_new_tokens": 200}, ConfigError, ["20 tokens", "200", "--max-new-tokens 20"]),
        ([[1, 61]], {}, DataError, ["token 61", "61 tokens", "tokenizer"]),
        ([[-1]], {}, DataError, ["token -1"]),
        ([[1]], {"top_k": 62}, ConfigError, ["top_k = 62", "at most 61"]),
        ([[1]], {"stop_token": 61}, ConfigError, ["stop_token = 61", "never stop"]),
        ([[1]], {"top_p": 2.0}, ConfigError, ["top_p = 2.0"]),
    ],
)
def test_refusals(
    model: GPT2, prompts: list[list[int]], changes: dict[str, Any], kind: type[UserError], words: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        generate(model, prompts, GenerationOptions(**{"max_new_tokens": 5, **changes}))
    for word in words:
        assert word in str(caught.value)


def test_broken_weights_are_not_sampled() -> None:
    broken = GPT2(CONFIG)
    with torch.no_grad():
        broken.final_norm.weight[3] = torch.nan
    with pytest.raises(NumericsError, match="not finite"):
        generate(broken, [[1]], GREEDY)


def test_no_prompts(model: GPT2) -> None:
    assert generate(model, [], GREEDY) == []


RESTRAINED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 0.8},
    {"min_new_tokens": 25},
]


@pytest.mark.parametrize("settings", RESTRAINED)
@pytest.mark.parametrize("beams", [1, 3])
def test_restraint_is_that_of_transformers(
    model: GPT2, theirs: transformers.GPT2LMHeadModel, settings: dict[str, Any], beams: int
) -> None:
    stop = GREEDY_STOP
    options = GenerationOptions(max_new_tokens=30, temperature=0, stop_token=stop, num_beams=beams, **settings)
    for prompt, ours in zip(PROMPTS, generate(model, PROMPTS, options), strict=True):
        tokens = torch.tensor([prompt])
        result = theirs.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=30,
            do_sample=False,
            num_beams=beams,
            eos_token_id=stop,
            pad_token_id=0,
            **settings,
        )
        new = result[0, len(prompt) :].tolist()
        assert ours == (new[: new.index(stop)] if stop in new else new)


BEAMS_STOP = 58
BEAMS: list[dict[str, Any]] = [
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    {"num_beams": 4, "length_penalty": -1.5, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": 0.0, "early_stopping": True, "num_return_sequences": 4},
    {"num_beams": 2, "length_penalty": -0.5, "early_stopping": "never"},
    {"num_beams": 9, "length_penalty": 0.7, "num_return_sequences": 2},
]


def test_beams_are_those_of_transformers(model: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    """With length penalties on either side of nothing, and every way to end: token for token."""
    told = []
    for how in BEAMS:
        options = GenerationOptions(max_new_tokens=12, temperature=0, stop_token=BEAMS_STOP, **how)
        ours = generate(model, PROMPTS[1:4], options)
        expected = []
        for prompt in PROMPTS[1:4]:
            new = written(theirs, prompt, BEAMS_STOP, 12, **how)
            expected += [row[: row.index(BEAMS_STOP)] if BEAMS_STOP in row else row for row in new]
        assert ours == expected, how
        told.append(tuple(map(tuple, ours[:: options.num_return_sequences])))
    assert len({len(row) for rows in told for row in rows}) > 3, "all are equally long: no penalty was seen"
    assert len(set(told)) > 2, "all settings give the same"


def test_log_probabilities_are_the_models_own(model: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    """Whatever is done to logits before a token is drawn."""
    options = GenerationOptions(max_new_tokens=8, temperature=3.0, top_k=9, logprobs=4, num_return_sequences=2)
    generator = Generator(Decoder(model.eval(), Room(4, 40)))
    generator.add(Request(PROMPTS[1], options))
    events: list[Event] = []
    while generator.busy:
        events += generator.step()
    for sequence in (0, 1):
        mine = [event for event in events if event.sequence == sequence]
        written = [token for event in mine for token in event.tokens]
        with torch.no_grad():
            logits = theirs(torch.tensor([[*PROMPTS[1], *written]])).logits[0, len(PROMPTS[1]) - 1 : -1]
        expected = logits.log_softmax(dim=-1)
        for event, row, token in zip(mine, expected, written, strict=True):
            assert event.logprobs is not None
            assert event.logprobs.chosen == pytest.approx(row[token].item(), abs=1e-4)
            assert [number for number, _ in event.logprobs.likeliest] == row.topk(4).indices.tolist()
            assert [value for _, value in event.logprobs.likeliest] == pytest.approx(
                row.topk(4).values.tolist(), abs=1e-4
            )


def test_a_sequence_that_is_ended_leaves_the_others_alone(model: GPT2) -> None:
    options = GenerationOptions(max_new_tokens=12, temperature=3.0, num_return_sequences=3)
    whole = generate(model, PROMPTS[:3], options)
    counts = [0] * 9

    def enough(sequence: int, token: int) -> bool:
        counts[sequence] += 1
        return sequence in (0, 4) and counts[sequence] == 5

    cut = generate(model, PROMPTS[:3], options, enough)
    assert cut == [tokens[:5] if number in (0, 4) else tokens for number, tokens in enumerate(whole)]


def test_a_prompt_and_what_is_written_share_a_slot(model: GPT2) -> None:
    model.eval()
    generator = Generator(Decoder(model, Room(2, 12)))
    options = GenerationOptions(max_new_tokens=6, temperature=0)
    with pytest.raises(ConfigError, match=r"6 behind a prompt of 8(.|\n)*room for 13(.|\n)*has 12(.|\n)*1 fewer"):
        generator.add(Request([7] * 8, options))
    generator.add(Request([7] * 7, options))
    written: list[int] = []
    while generator.busy:
        written += [token for event in generator.step() for token in event.tokens]
    assert [written] == generate(model, [[7] * 7], options)
