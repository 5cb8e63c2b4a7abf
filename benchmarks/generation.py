"""Greedy generation on a CPU, beside transformers' `generate` and CTranslate2: T5-small (eight sources of 64 tokens, 64
new ones), GPT-2 124M (one prompt and eight of 32 tokens, 128 new ones; 64 prompts of 8 to 512 tokens, 64 new ones);
nothing ends before.

Settings take turns, a whole generation at a time. transformers runs as it comes (hf-eager), with our allocator's
settings (hf-tuned), and with a static cache and compiled steps besides (hf-static); prompts of mixed lengths are padded
on the left, in batches of as many as we write at once. CTranslate2 runs in float32 and int8. Ours runs in its formats,
and over two processes (tensor, pipeline), each with a core; with one prompt, beside a large read by all cores, which
tells how fast the machine gives memory. On prompts of mixed lengths the peak memory of all sides is kept, of ours with
a bound on keys and values too.

Besides: where the time of a token goes; whether a token at the end of a context takes longer than one at its beginning;
and the perplexity of the same text by ours and CTranslate2 in their formats, with a small GPT-2 that was trained on
that text, the Python language reference, for a minute.

A workload's rows are kept as soon as it is done. CTranslate2 is asked for, so that no row is missing unnoticed. Run:

python benchmarks/generation.py [--rounds 1] [--steps 8] [--workloads "GPT-2 124M, 1" …] [--without-ctranslate2]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from comparison import Child, Result, middle, run_in_turns, timed
from report import Row, keep_part

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
FLAT = "GPT-2 124M, to the end of the context"
PERPLEXITY = "Perplexity of a small GPT-2"
EARLY, LATE = (32, 64), (900, 1000)
"""Places of tokens in a context of 1024."""
BOUND = 2**29
"""Bytes of keys and values, where they are bounded: a third of what the mixed prompts would take."""
READ_BYTES = 2**30
TRAINING_STEPS = 200
TEXT_LETTERS = 60_000
GOALS = {
    "T5-small, 8: hf-tuned": "≥ 1.5",
    "GPT-2 124M, 1: hf-tuned": "≥ 1.5",
    "GPT-2 124M, 1: hf-static": "≥ 1.3",
    "GPT-2 124M, 8: hf-static": "≥ 1.5",
    "GPT-2 124M, 8: ctranslate2-float32": "≥ 1.5",
    f"{MIXED}: hf-tuned": "≥ 1.5",
}
OTHER = "ctranslate2"
NO_WRITER = ("read", "shares")
"""Settings that measure something else than tokens a second."""
PEERS = ("hf-eager", "hf-tuned", "hf-static", "ctranslate2-float32", "ctranslate2-int8")


def rows(work: str, found: dict[str, Result]) -> list[Row]:
    """What is told of a workload, given the results of its settings."""
    if work == FLAT:
        result = found["paddock"]
        out: list[Row] = [(f"{FLAT}: a token at {EARLY[0]} to {EARLY[1]}, ms", result["early"] * 1e3, "")]
        out.append((f"{FLAT}: a token at {LATE[0]} to {LATE[1]}, ms", result["late"] * 1e3, ""))
        return [*out, (f"{FLAT}: late ÷ early", result["late"] / result["early"], "")]
    if work == PERPLEXITY:
        return [(f"{PERPLEXITY}: {name}", value, "") for name, value in found["all"].items() if name != "speed"]
    out = [
        (f"{work}: {name}, tokens/s", result["speed"], "") for name, result in found.items() if name not in NO_WRITER
    ]
    ours = found["paddock"]
    for name, result in found.items():
        if name in PEERS:
            best = ours if name != "ctranslate2-int8" else max_speed(found, "int8")
            goal = "≥ 1" if name == "ctranslate2-int8" else GOALS.get(f"{work}: {name}", "")
            out.append((f"{work}: ratio to {name}", best["speed"] / result["speed"], goal))
        elif name.startswith("paddock-"):
            goal = {"paddock-tensor": "≥ 0.8", "paddock-pipeline": "≥ 0.75"}.get(name, "")
            out.append((f"{work}: {name}: ratio to one process in float32", result["speed"] / ours["speed"], goal))
    if "read" in found:
        # Every token reads all weights once, but for the rows of the embeddings that are not looked up.
        read, available = ours["speed"] * ours["weight_bytes"], found["read"]["speed"]
        out += [(f"{work}: weights read, GB/s", read / 1e9, ""), (f"{work}: a large read, GB/s", available / 1e9, "")]
        out.append((f"{work}: weights read ÷ a large read", read / available, "≥ 0.6"))
    if "shares" in found:
        out += [(f"{work}: share of {name}", share, "") for name, share in found["shares"].items() if name != "speed"]
    if work == MIXED:
        out += [(f"{work}: {name}, peak memory, GB", result["memory"] / 1e9, "") for name, result in found.items()]
    return out


def max_speed(found: dict[str, Result], format: str) -> Result:
    """The fastest of ours whose name has a word."""
    several = [result for name, result in found.items() if name.startswith(f"paddock-{format}")]
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


def paddock(steps: int, work: str, format: Any = "float32", cache_bytes: int = 2**31) -> Result:
    from paddock.inference.generation.generate import Limits, generate
    from paddock.models.layers.packing import weight_bytes

    todo = WORKS[work]
    model, computing = our_model(todo.recipe, format)
    read_once = weight_bytes(model) - model.embedding.position.weight.nbytes if "GPT-2" in work else 0
    given, limits = todo.tokens(), Limits(BATCH, cache_bytes)
    with computing:
        found = timed(lambda: generate(model, given, options(todo), limits=limits), steps, todo.prompts * todo.new)
    return found | {"weight_bytes": float(read_once)}


def our_model(recipe_name: str, format: Any = "float32") -> Any:
    """A model with random weights, and what it is to compute in."""
    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.models.layers.initialization import initialize
    from paddock.models.layers.packing import set_format
    from paddock.models.registry import build_model

    recipe, adapter = load_recipe(recipe_name), select("cpu")
    adapter.prepare()
    model = build_model(recipe.model).eval()
    initialize(model, recipe.train.seed)
    set_format(model, format)
    return model, adapter.using_products(adapter.choose_products("auto", recipe.model.num_parameters()))


def large_read(steps: int) -> Result:
    """Bytes a second that all cores read together, one behind the other."""
    import torch

    values = torch.ones(READ_BYTES // 4)
    return timed(values.sum, steps, READ_BYTES)


def shares(steps: int, work: str) -> Result:
    """What part of a token's time is spent on what: products of the layers, attention (with the cache, without its
    products), the head, the rest of the model (norms, activations, sums), and outside of it (choosing, the loop)."""
    from paddock.inference.generation.generate import generate
    from paddock.models.layers.attention import SelfAttention
    from paddock.models.layers.basic import Linear
    from paddock.models.layers.cross_entropy import VocabularyHead

    todo = WORKS[work]
    model, computing = our_model(todo.recipe)
    seconds: dict[str, float] = {}
    for module in model.modules():
        inside = isinstance(module, SelfAttention)
        if isinstance(module, (Linear, SelfAttention, VocabularyHead)):
            clock(module, type(module).__name__, seconds)
        for own in module.children() if inside else ():
            if isinstance(own, Linear):
                clock(own, "Linear in attention", seconds)
    clock(model, "model", seconds)
    with computing:
        generate(model, todo.tokens(), options(todo))
        seconds.clear()
        started = time.perf_counter()
        for _ in range(steps):
            generate(model, todo.tokens(), options(todo))
        total = time.perf_counter() - started
    products, head = seconds["Linear"], seconds["VocabularyHead"]
    attention = seconds["SelfAttention"] - seconds["Linear in attention"]
    rest, outside = seconds["model"] - products - attention - head, total - seconds["model"]
    parts = {"products": products, "attention": attention, "head": head, "the rest of the model": rest}
    parts["choosing and the loop"] = outside
    return {"speed": todo.prompts * todo.new * steps / total} | {name: part / total for name, part in parts.items()}


def clock(module: Any, name: str, seconds: dict[str, float]) -> None:
    """Add the time of a module's forward passes to what has this name."""
    began: list[float] = []

    def begin(*_: Any) -> None:
        began.append(time.perf_counter())

    def end(*_: Any) -> None:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began.pop()

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)


def flatness(steps: int) -> Result:
    """Seconds of a token in the middle, of those early and late in one text as long as the context bears."""
    from paddock.inference.generation.generate import generate
    from paddock.inference.generation.options import GenerationOptions

    model, computing = our_model("gpt2/117m")
    prompt = Work("", 1, EARLY[0] - 8, EARLY[0] - 8, 0).tokens()
    wanted = GenerationOptions(max_new_tokens=LATE[1] + 1 - len(prompt[0]), temperature=0.0)
    early: list[float] = []
    late: list[float] = []
    times: list[float] = []
    with computing:
        for _ in range(max(1, steps // 4)):
            times.clear()
            generate(model, prompt, wanted, lambda _, __: times.append(time.perf_counter()))
            lasted = [after - before for before, after in zip(times, times[1:], strict=False)]
            early += lasted[EARLY[0] - len(prompt[0]) : EARLY[1] - len(prompt[0])]
            late += lasted[LATE[0] - len(prompt[0]) : LATE[1] - len(prompt[0])]
    found = {"early": statistics.median(early), "late": statistics.median(late)}
    return {"speed": 1 / found["early"], **found}


def perplexities(steps: int, peers: bool) -> Result:
    """Of the same windows of a text, by ours and CTranslate2 in their formats."""
    del steps
    import paddock as package
    from paddock.data.language.embedded import embedded_documents
    from paddock.inference.loaded import windows

    text = "\n".join(embedded_documents())[:TEXT_LETTERS]
    with tempfile.TemporaryDirectory() as folder:
        run, exported = f"{folder}/run", f"{folder}/exported"
        verb = [sys.executable, "-m", "paddock"]
        train = [*verb, "train", "gpt2/tiny", "--run-dir", run, "--steps", str(TRAINING_STEPS)]
        subprocess.run(train, check=True, stdout=sys.stderr)
        subprocess.run([*verb, "convert", run, exported], check=True, stdout=sys.stderr)
        whole = package.load(run)
        tokens, length = whole.tokenizer.encode(text), whole.model.config.longest_sequence() or 0
        rows = [[tokens[:1], labels] for tokens, labels in windows(tokens, length, length)[:-1]]
        texts = [[*first, *labels] for first, labels in rows]
        found: Result = {"speed": 1.0}
        for format in ("float32", "bfloat16", "int8", "int8-dynamic"):
            found[f"paddock-{format}"] = ours_of(package.load(run, format=format).model, texts)
        for format in ("float32", "int8") if peers else ():
            found[f"ctranslate2-{format}"] = theirs_of(exported, format, texts)
    return found


def ours_of(model: Any, texts: list[list[int]]) -> float:
    """Of all tokens but the first of each text, which are equally long."""
    import torch

    total = 0.0
    with torch.inference_mode():
        for row in texts:
            tokens = torch.tensor([row])
            total += float(model(tokens=tokens[:, :-1], labels=tokens[:, 1:]))
    return math.exp(total / sum(len(row) - 1 for row in texts))


def theirs_of(folder: str, format: str, texts: list[list[int]]) -> float:
    import ctranslate2 as library
    from transformers import AutoTokenizer

    name = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens
    place = f"{folder}-{format}"
    library.converters.TransformersConverter(folder).convert(
        place, quantization=None if format == "float32" else format
    )
    model = library.Generator(place, compute_type=format)
    total, count = 0.0, 0
    for result in model.score_batch([name(row) for row in texts], max_batch_size=1):
        total -= sum(result.log_probs)
        count += len(result.log_probs)
    assert count == sum(len(row) - 1 for row in texts), "it scored other tokens than ours"
    return math.exp(total / count)


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


def children() -> dict[str, dict[str, Child]]:
    """Every workload and its settings, CTranslate2's too."""
    found: dict[str, dict[str, Child]] = {}
    for name, work in WORKS.items():
        kinds = ("tuned",) if work.beams > 1 else ("eager", "tuned") if name == MIXED else ("eager", "tuned", "static")
        found[name] = {f"hf-{kind}": partial(huggingface, work=name, kind=kind) for kind in kinds}
        found[name]["paddock"] = partial(paddock, work=name)
        if name in FORMATTED:
            for format in ("bfloat16", "int8", "int8-dynamic"):
                found[name][f"paddock-{format}"] = partial(paddock, work=name, format=format)
            for format in ("float32", "int8"):
                found[name][f"{OTHER}-{format}"] = partial(ctranslate2, work=name, format=format)
        if name == FORMATTED[0]:
            found[name] |= {"read": large_read, "shares": partial(shares, work=name)}
        if name == DIVIDED:
            for axis in ("tensor", "pipeline"):
                found[name][f"paddock-{axis}"] = partial(divided, work=name, axis=axis)
        if name == MIXED:
            found[name]["paddock-bounded"] = partial(paddock, work=name, cache_bytes=BOUND)
    found[FLAT] = {"paddock": flatness}
    found[PERPLEXITY] = {"all": partial(perplexities, peers=find_spec(OTHER) is not None)}
    return found


def main(script: str = __file__) -> None:
    everything = children()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--workloads", nargs="*", default=list(everything), choices=list(everything))
    parser.add_argument("--without-ctranslate2", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        workload, _, setting = arguments.child.partition(": ")
        print(json.dumps(everything[workload][setting](arguments.steps)))
        return
    if find_spec(OTHER) is None and not arguments.without_ctranslate2:
        raise SystemExit("CTranslate2 is not installed: pip install ctranslate2, or give --without-ctranslate2")
    for workload in arguments.workloads:
        settings = [name for name in everything[workload] if not (arguments.without_ctranslate2 and OTHER in name)]
        results: dict[str, list[Result]] = {name: [] for name in settings}
        for number in range(arguments.rounds):
            names = [f"{workload}: {setting}" for setting in settings]
            for name, result in run_in_turns(script, names, arguments.steps).items():
                print(f"round {number + 1} {name}: {result}", file=sys.stderr, flush=True)
                results[name.removeprefix(f"{workload}: ")].append(result)
        keep_part(script, rows(workload, {name: middle(several) for name, several in results.items()}))


if __name__ == "__main__":
    main()
