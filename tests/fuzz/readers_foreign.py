"""Readers of what other systems wrote: MindFormers' YAML, LiBai's Python, DeepSpeed's JSON, a package index's pages."""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine import Reader
from mutation import Files, damage_text, json_mutator, yaml_mutator

from paddock.config.foreign.deepspeed import flags_of_file
from paddock.config.load import load_recipe, to_yaml
from paddock.testing.samples.foreign_configs import LIBAI, MINDFORMERS
from paddock.zoo.lint.package_index import releases_on

WORDS = (
    *("base_config", "runner_config", "parallel_config", "recompute_config", "model", "train_dataset", "callbacks"),
    *("optimizer", "lr_schedule", "type", "use_parallel", "epochs", "batch_size", "GPT2Config", "trainer"),
)


def mindformers_seeds() -> list[Files]:
    parts = {name.rpartition("/")[2]: text for name, text in MINDFORMERS.items() if not name.endswith("run_small.yaml")}
    below = {f"base_{name}": text.encode() for name, text in parts.items()}
    bases = ", ".join(f"'./{name}'" for name in below)
    text = MINDFORMERS["gpt2/run_small.yaml"]
    return [{"run.yaml": f"base_config: [{bases}]\n{text[text.index('runner_config') :]}".encode(), **below}]


def read_mindformers(folder: Path) -> object:
    return to_yaml(load_recipe(folder / "run.yaml"))


def libai_seeds() -> list[Files]:
    """The whole config in one file, without what it imports from others."""
    names = ("common/train.py", "common/optim.py", "common/models/gpt.py", "common/data/gpt_dataset.py")
    text = "".join(LIBAI[f"configs/{name}"] for name in names) + "model = pretrain_model\n"
    text += LIBAI["configs/gpt_small.py"].partition("\n\n")[2]
    vocabulary = json.dumps({chr(65 + number): number for number in range(40)})
    return [{"run.py": text.encode(), "vocab.json": vocabulary.encode()}]


def read_libai(folder: Path) -> object:
    here = os.getcwd()
    os.chdir(folder)
    try:
        return to_yaml(load_recipe("./run.py"))
    finally:
        os.chdir(here)


def deepspeed_seeds() -> list[Files]:
    says = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "fp16": {"enabled": True, "initial_scale_power": 12},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10, "total_num_steps": 100}},
    }
    return [{"ds.json": json.dumps(says).encode()}]


def read_deepspeed(folder: Path) -> object:
    return flags_of_file(folder / "ds.json")


def index_seeds() -> list[Files]:
    files = [{"filename": "a-1.0.tar.gz", "requires-python": ">=3.8"}]
    files.append({"filename": "a-1.5-py3-none-any.whl", "yanked": "broken"})
    said = {"meta": {"api-version": "1.0"}, "name": "a", "files": files, "versions": ["1.0", "1.5"]}
    page = (
        '<!DOCTYPE html><a data-requires-python="&gt;=3.8" href="a-1.0.tar.gz#sha256=0">a</a>'
        '<a href="a-1.1.zip" data-yanked="">b</a><!-- c -->'
    )
    return [{"page.json": json.dumps(said).encode()}, {"page.html": page.encode()}]


def read_index_page(folder: Path) -> object:
    """What a package index answers, of either kind."""
    (path,) = folder.iterdir()
    kind = {".json": "application/vnd.pypi.simple.v1+json", ".html": "text/html"}[path.suffix]
    return [(str(one.version), one.lacks) for one in releases_on(kind, path.read_bytes())]


READERS = [
    Reader("mindformers", mindformers_seeds, read_mindformers, {".yaml": yaml_mutator(WORDS)}, share=0.5),
    Reader("libai", libai_seeds, read_libai, {".py": damage_text, ".json": json_mutator()}, share=0.5),
    Reader("deepspeed", deepspeed_seeds, read_deepspeed, {".json": json_mutator()}, share=0.3),
    Reader(
        "package_index",
        index_seeds,
        read_index_page,
        {".json": json_mutator(("files", "filename", "yanked", "requires-python")), ".html": damage_text},
        share=0.3,
    ),
]
