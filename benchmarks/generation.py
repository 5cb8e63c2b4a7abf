"""Greedy generation on a CPU, beside transformers' `generate` and CTranslate2: T5-small (eight sources of 64 tokens, 64
new ones), GPT-2 124M (one prompt and eight of 32 tokens, 128 new ones; 64 prompts of 8 to 512 tokens, 64 new ones);
nothing ends before.

Settings take turns, a whole generation at a time. transformers runs as it comes (hf-eager), with our allocator's
settings (hf-tuned), and with a static cache and compiled steps besides (hf-static); prompts of mixed lengths are padded
on the left, in batches of as many as we write at once. CTranslate2, where it is installed, runs in float32 and int8.
Ours runs in its formats, and over two processes (tensor, pipeline), each with a core.
Run: python benchmarks/generation.py [--rounds 1] [--steps 8] [--settings …]
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from comparison import Child, Result, compare, timed
from report import Row

BATCH = 32
"""Of prompts of mixed lengths: how many are written at once, on both sides."""


@dataclass(frozen=True)
class Work:
    """What is written."""

    recipe: str
    prompts: int
    shortest: int
    longest: int
    new: int
    beams: int = 1

    def tokens(self) -> list[list[int]]:
        """The prompts; the same on both sides."""
        draw = random.Random(1)
        lengths = [draw.randint(self.shortest, self.longest) for _ in range(self.prompts)]
        return [[draw.randrange(2, 32000) for _ in range(length)] for length in lengths]


WORKS = {
    "T5-small, 8": Work("t5/small", 8, 64, 64, 64),
    "T5-small, 8, 4 beams": Work("t5/small", 8, 64, 64, 64, beams=4),
    "GPT-2 124M, 1": Work("gpt2/117m", 1, 32, 32, 128),
    "GPT-2 124M, 8": Work("gpt2/117m", 8, 32, 32, 128),
    "GPT-2 124M, 64 of mixed lengths": Work("gpt2/117m", 64, 8, 512, 64),
}
FORMATTED = ("GPT-2 124M, 1", "GPT-2 124M, 8")
DIVIDED = "GPT-2 124M, 8"
MIXED = "GPT-2 124M, 64 of mixed lengths"
GOALS = {
    "T5-small, 8: hf-tuned": "≥ 1.5",
    "GPT-2 124M, 1: hf-tuned": "≥ 1.5",
    "GPT-2 124M, 1: hf-static": "≥ 1.3",
    "GPT-2 124M, 8: hf-static": "≥ 1.5",
    "GPT-2 124M, 8: ctranslate2-float32": "≥ 1.5",
    f"{MIXED}: hf-tuned": "≥ 1.5",
}
PEERS = ("hf-eager", "hf-tuned", "hf-static", "ctranslate2-float32", "ctranslate2-int8")


def rows(found: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    out: list[Row] = [(f"{name}, tokens/s", result["speed"], "") for name, result in found.items()]
    for work in WORKS:
        ours = found[f"{work}: paddock"]
        if work == "GPT-2 124M, 1":
            # Every token reads all weights once, but for the rows of the embedding that are not looked up.
            out.append((f"{work}: weights read, GB/s", ours["fastest"] * 0.498, ""))
        for kind in PEERS:
            if (theirs := found.get(f"{work}: {kind}")) is None:
                continue
            best = ours if kind != "ctranslate2-int8" else max_speed(found, work, "int8")
            goal = "≥ 1" if kind == "ctranslate2-int8" else GOALS.get(f"{work}: {kind}", "")
            out.append((f"{work}: ratio to {kind}", best["speed"] / theirs["speed"], goal))
        for name in found:
            if name.startswith(f"{work}: paddock-"):
                goal = {"paddock-tensor": "≥ 0.8", "paddock-pipeline": "≥ 0.75"}.get(name.split(": ")[1], "")
                out.append((f"{name}: ratio to one process in float32", found[name]["speed"] / ours["speed"], goal))
    return out


def max_speed(found: dict[str, Result], work: str, format: str) -> Result:
    """The fastest of ours whose name has a word."""
    several = [result for name, result in found.items() if name.startswith(f"{work}: paddock-{format}")]
    return max(several, key=lambda result: result["speed"])


def peer_model(recipe: str) -> Any:
    import torch

    from paddock.benchmarking.peers import PEERS as LIBRARIES
    from paddock.config.load import load_recipe

    torch.manual_seed(0)
    return LIBRARIES["hf"].build(load_recipe(recipe).model).model.eval()


def huggingface(steps: int, work: str, kind: str) -> Result:
    import torch

    from paddock.devices import select

    todo = WORKS[work]
    if kind != "eager":
        select("cpu").prepare()
    model = peer_model(todo.recipe)
    settings = {"max_new_tokens": todo.new, "min_new_tokens": todo.new, "do_sample": False, "num_beams": todo.beams}
    settings |= {"pad_token_id": 0, "use_cache": True}
    if kind == "static":
        settings["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward)
    batches = []
    in_order = sorted(todo.tokens(), key=len)  # as little padding as there can be
    for first in range(0, todo.prompts, BATCH):
        some = in_order[first : first + BATCH]
        longest = max(map(len, some))
        tokens = torch.tensor([[0] * (longest - len(row)) + row for row in some])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in some])
        batches.append((tokens, mask))

    def write() -> None:
        for tokens, mask in batches:
            model.generate(tokens, attention_mask=mask, **settings)

    with torch.inference_mode():
        return timed(write, steps, todo.prompts * todo.new)


def ctranslate2(steps: int, work: str, format: str) -> Result:
    import ctranslate2 as library
    import torch

    todo = WORKS[work]
    with tempfile.TemporaryDirectory() as folder:
        peer_model(todo.recipe).save_pretrained(f"{folder}/model")
        vocabulary = [f"t{number}" for number in range(50257)]
        _write_tokenizer(f"{folder}/model", vocabulary)
        converter = library.converters.TransformersConverter(f"{folder}/model")
        converter.convert(f"{folder}/converted", quantization=None if format == "float32" else format)
        model = library.Generator(f"{folder}/converted", intra_threads=torch.get_num_threads(), compute_type=format)
        prompts = [[vocabulary[token] for token in row] for row in todo.tokens()]
        settings = {"max_length": todo.new, "min_length": todo.new, "sampling_topk": 1}
        how = {"include_prompt_in_result": False, "max_batch_size": BATCH}
        return timed(lambda: model.generate_batch(prompts, **settings, **how), steps, todo.prompts * todo.new)


def _write_tokenizer(folder: str, vocabulary: list[str]) -> None:
    """A tokenizer whose tokens are words: CTranslate2 takes a model with one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="t0"))  # noqa: S106
    special = {"bos_token": "t50256", "eos_token": "t50256", "unk_token": "t50256"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)


def paddock(steps: int, work: str, format: Any = "float32") -> Result:
    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.inference.generation.generate import Limits, generate
    from paddock.models.layers.initialization import initialize
    from paddock.models.layers.packing import set_format
    from paddock.models.registry import build_model

    todo = WORKS[work]
    recipe, adapter = load_recipe(todo.recipe), select("cpu")
    adapter.prepare()
    model = build_model(recipe.model).eval()
    initialize(model, recipe.train.seed)
    set_format(model, format)
    given, limits = todo.tokens(), Limits(sequences=BATCH)
    with adapter.using_products(adapter.choose_products("auto", recipe.model.num_parameters())):
        return timed(lambda: generate(model, given, options(todo), limits=limits), steps, todo.prompts * todo.new)


def options(todo: Work) -> Any:
    from paddock.inference.generation.options import GenerationOptions

    return GenerationOptions(max_new_tokens=todo.new, num_beams=todo.beams, temperature=0.0)


def divided(steps: int, work: str, axis: str) -> Result:
    """Two processes with a core each."""
    from paddock.testing.pool import ProcessPool

    todo = WORKS[work]
    with ProcessPool(2) as pool:
        return timed(lambda: pool.run(write_together, work, axis), steps, todo.prompts * todo.new)


def write_together(rank: int, work: str, axis: str) -> None:
    """In a process of the pool."""
    from paddock.devices import select
    from paddock.inference.generation.generate import Limits, generate
    from paddock.inference.generation.parallel_decoder import follow, leading

    adapter, todo = select("cpu"), WORKS[work]
    replica, products = part_of(work, axis)
    with adapter.using_products(products):
        if not replica.leads:
            follow(replica)
            return
        with leading(replica):
            generate(replica.model, todo.tokens(), options(todo), limits=Limits(sequences=BATCH), replica=replica)


@cache
def part_of(work: str, axis: str) -> Any:
    """This process's part of the model, made once."""
    from paddock.config.load import load_recipe
    from paddock.inference.generation.parallel_decoder import Replica
    from paddock.models.build import build_part, complete_part
    from paddock.models.layers.initialization import initialize
    from paddock.models.model import allocate
    from paddock.parallel.config import ParallelConfig, derive_layout
    from paddock.parallel.mesh import build_mesh
    from paddock.testing.layouts import this_world

    world, recipe = this_world(), load_recipe(WORKS[work].recipe)
    world.adapter.prepare()
    parallel = ParallelConfig(**{axis: 2})
    mesh = build_mesh(derive_layout(parallel, 2), world.rank, "cpu", reversed_stages=True)
    stage = build_part(recipe.model, parallel, mesh)
    allocate(stage, world.device)
    initialize(stage.model, recipe.train.seed)
    complete_part(stage, mesh)
    products = world.adapter.choose_products("auto", recipe.model.num_parameters())
    return Replica(stage, mesh, world.device), products


def children() -> dict[str, Child]:
    """Every work and setting."""
    found: dict[str, Child] = {}
    for name, work in WORKS.items():
        kinds = ("tuned",) if work.beams > 1 else ("eager", "tuned") if name == MIXED else ("eager", "tuned", "static")
        found |= {f"{name}: hf-{kind}": partial(huggingface, work=name, kind=kind) for kind in kinds}
        found[f"{name}: paddock"] = partial(paddock, work=name)
        if name in FORMATTED:
            for format in ("bfloat16", "int8", "int8-dynamic"):
                found[f"{name}: paddock-{format}"] = partial(paddock, work=name, format=format)
            if find_spec("ctranslate2") is not None:
                for format in ("float32", "int8"):
                    found[f"{name}: ctranslate2-{format}"] = partial(ctranslate2, work=name, format=format)
        if name == DIVIDED:
            for axis in ("tensor", "pipeline"):
                found[f"{name}: paddock-{axis}"] = partial(divided, work=name, axis=axis)
    return found


if __name__ == "__main__":
    compare(__doc__ or "", __file__, children(), rows)
