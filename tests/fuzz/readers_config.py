"""Readers of what people type: recipes, layouts, command lines, and the variables of a launcher."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from engine import Reader
from mutation import (
    NUMBERS,
    WORDS,
    Files,
    damage_bytes,
    damage_text,
    damage_values,
    json_mutator,
    odd_text,
    to_json,
    yaml_mutator,
)
from packaging.version import Version
from readers_foreign import mindformers_seeds

from paddock.cli import main as command
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, recipe_names, to_yaml
from paddock.config.rules import check_recipe, examine
from paddock.errors import UserError
from paddock.launch.environment import process_counts, under_torchrun, worker_environment, world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import placed
from paddock.launch.placement.rank_table import make_rank_table, merge_rank_tables, problems_of, read_rank_table
from paddock.launch.starters.hostfile import read_hosts
from paddock.testing.samples.corpora import write_raw_corpus
from paddock.zoo.cases import as_flags
from paddock.zoo.contribution import Contribution
from paddock.zoo.findings import Finding
from paddock.zoo.lint.package_index import Release
from paddock.zoo.lint.requirements import check_requirements
from paddock.zoo.model_file import find_place, read_cases

BASE = """\
task: language_modeling
model: {family: gpt2, layers: 2, hidden: 8, heads: 2, vocab: 64, context: 16, dropout: 0.1}
data: {source: synthetic, sequence_length: 16}
batch: {micro: 2, global: 4}
train: {steps: 10, seed: 7}
"""
OVER = """\
extends: ./base.yaml
optimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.95], clip: 1.0}
schedule: {name: cosine, warmup: 2, min_lr: 1.0e-5}
parallel: {tensor: 1, schedule: 1f1b, stages: auto}
checkpoint: {every: 5, keep: 2}
"""
BERT = """\
task: question_answering
model: {family: bert, layers: 1, hidden: 8, heads: 2, vocab: 64, context: 32, head: question_answering}
data: {source: synthetic, sequence_length: 32, stride: 4, question_length: 8}
train: {epochs: 1}
tokenizer: {kind: trained}
"""
RESNET = """\
task: image_classification
model: {family: resnet, arch: resnet18, width: 8, classes: 8}
data: {source: shapes, image_size: 32}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 2, device: cpu}
"""
FIELDS = (
    *(
        "extends",
        "task",
        "model",
        "data",
        "tokenizer",
        "parallel",
        "batch",
        "optimizer",
        "schedule",
        "precision",
        "train",
    ),
    *(
        "evaluate",
        "checkpoint",
        "log",
        "family",
        "layers",
        "hidden",
        "heads",
        "vocab",
        "context",
        "source",
        "path",
        "lr",
    ),
    *(
        "gpt2",
        "bert",
        "resnet",
        "gpt2/base",
        "./base.yaml",
        "./recipe.yaml",
        "micro",
        "global",
        "accumulation",
        "steps",
    ),
    *(
        "language_modeling",
        "masked_language_modeling",
        "sequence_classification",
        "indexed",
        "synthetic",
        "auto",
        "data",
    ),
    *(
        "interleaved",
        "zbv",
        "shard",
        "recompute",
        "tensor",
        "pipeline",
        "stages",
        "callbacks",
        "device",
        "compile",
        "self",
    ),
)


def recipe_seeds() -> list[Files]:
    return [
        {"recipe.yaml": OVER.encode(), "base.yaml": BASE.encode()},
        {"recipe.yaml": BERT.encode()},
        {"recipe.yaml": RESNET.encode()},
    ]


def read_recipe(folder: Path) -> object:
    recipe = load_recipe(str(folder / "recipe.yaml"))
    examine(recipe, 2)
    check_recipe(recipe, 1)
    recipe.model.num_parameters()
    return to_yaml(recipe)


@cache
def recipe_of_layouts() -> Any:
    return load_recipe("gpt2/tiny")


def layout_seeds() -> list[Files]:
    texts = ("dp2,tp2,pp2,schedule=interleaved,accumulation=4", "dp1", "tp2,sequence=true,shard=none,recompute=full")
    return [{"layout": text.encode()} for text in texts]


def read_layout(folder: Path) -> object:
    text = (folder / "layout").read_bytes().decode("utf-8", "surrogateescape")
    return to_yaml(with_layout(recipe_of_layouts(), text))


def damage_layout(rng: Random, data: bytes) -> bytes:
    words = data.split(b",")
    word = rng.choice(
        ("dp", "tp", "pp", "schedule=", "shard=", "accumulation=", "sequence=", "recompute=", "data=", "", "dp2=")
    )
    value = rng.choice((str(rng.choice(NUMBERS)), odd_text(rng), "1f1b", "true", "²", "٣", "1" * 5000))
    words.insert(rng.randrange(len(words) + 1), (word + value).encode("utf-8", "surrogatepass"))
    return b",".join(words) if rng.random() < 0.6 else damage_bytes(rng, data)


# Command lines

COMMANDS = (
    "train gpt2/tiny --dry-run --optimizer.lr 1e-3 --data.split 949,50,1 --train.seed 5",
    "train gpt2/tiny --steps 3 --nproc-per-node 2 --run-dir out --checkpoint.load auto",
    "train gpt2/tiny --num-layers 2 --hidden-size 64 --tensor-model-parallel-size 2 --micro-batch-size 2",
    "train resnet -a resnet18 --dummy -b 4 -j 0 -p 1 --lr 0.05 --wd 0 --epochs 3 images",
    "train gpt2/tiny --dry-run --world 8 --rank 1 --json",
    "check config bert/tiny --json --parallel.pipeline 2",
    "check parity gpt2/tiny --layouts dp2 tp2",
    "check resume gpt2/tiny --layout dp2 --kill-seed 3",
    "evaluate gpt2/tiny --checkpoint.load weights --nproc-per-node 3 --json",
    "evaluate corpus --device cpu",
    "generate model --prompt hello --max-new-tokens 5 --temperature 0.5 --top-k 3 --seed 1",
    "predict model text --top-k 2 --batch 4 --output out.jsonl --on-error skip",
    "predict model --context one --question two --json",
    "benchmark gpt2/tiny --benchmark.train --json",
    "convert a b --to huggingface --dtype float32",
    "preprocess --input corpus.bin --output-prefix out --tokenizer-type BertWordPieceLowerCase --vocab-file v.txt "
    "--workers 1 --append-eod --json-keys text title",
    "data inspect corpus --json",
    "data verify corpus --vocab-size 100 --json",
    "data merge corpus corpus --output-prefix out",
    "align out corpus.bin --tolerance 0.1 --steps 5 --loss train.loss loss --offset 1 --json",
    "train --model_name resnet18 --batch_size 4 --epoch 1 --step 5 --dataset_path images --lr 0.1 --device cpu "
    "--autocast True --nproc_per_node 2 --nnode 1 --node_rank 0",
    "zoo list --json",
    "zoo check out --static --root . --index file:///x --time-limit 5 --env HOME --json",
    "zoo wrap corpus.bin --pattern train.loss=x([0-9]+) --samples-per-step 8 -- --epochs 3",
    "zoo show gpt2/tiny",
    "doctor --json",
    "resume out --train.steps 7",
    "cache list --json",
    "completion bash",
    "convert-config run.yaml --output made.yaml runner_config.epochs=2",
    "convert-config run.yaml --json",
    "flags zero --json",
    "flags --num-layers",
    "launch sbatch --nodes 4 --gpus-per-node 8 --time 24:00:00 --output job.sh -- train gpt2/tiny --run-dir out",
    "launch kubernetes --nodes 4 --image a:b --device cuda --volume-claim runs:/runs -- train gpt2/tiny",
    "launch hostfile hosts.txt --print -- train gpt2/tiny --run-dir out",
    "launch container --image a:b --device cpu --mount . --print -- train gpt2/tiny --nproc-per-node 8",
    "ranktable make --devices [0,2] --server-id 10.0.0.1 --output server.json",
    "ranktable merge table.json other.json --output both.json",
    "ranktable check table.json --rank-size 2 --json",
    "recipe show gpt2/tiny --json",
    "recipe copy gpt2/tiny mine.yaml",
    "report run --output page.html --metric train.loss --x time --smooth 2 --log",
    "report run run --format csv",
    "runs list . --json",
    "runs show run --json",
    "runs compare run run --all",
    "runs plot run --metric train.loss --width 40 --height 8",
    "--version",
    "train --help",
)
STUBS = (
    *"paddock.jobs.evaluate.evaluate paddock.jobs.benchmark.benchmark paddock.jobs.convert.convert".split(),
    *"paddock.jobs.generate.continue_text paddock.jobs.predict.open_predictor paddock.jobs.doctor.diagnose".split(),
    *(
        "paddock.jobs.data.merge_corpora",
        "paddock.jobs.align.align_runs",
        "paddock.alignment.parity.check_parity",
        "paddock.alignment.resume.check_resume",
        "paddock.zoo.wrap.wrap",
        "paddock.zoo.cases.run_case",
        "paddock.zoo.scaffold.new_contribution",
        "paddock.launch.starters.programs.run_together",
        "paddock.reporting.tidying.carry_out",
        "paddock.data.kept.remove",
        "os.execvp",
    ),
)
"""What a command would begin: it is read here, not done."""
CODES = {0, 2, 3, 4, 5, 6, 7, 8}
"""Those that the front page lists, but for 1: that is a defect of ours, whoever caused it."""


class Done(UserError):
    """The command was understood."""

    exit_code = 0


def command_seeds() -> list[Files]:
    return [{"arguments.json": json.dumps(line.split()).encode()} for line in COMMANDS]


def read_command(folder: Path) -> object:
    """The exit code of a command that is parsed and checked, and then not done."""
    arguments = _arguments(folder / "arguments.json")
    _lay_out(folder)
    here = os.getcwd()
    os.chdir(folder)
    try:
        with _stubbed():
            code = command.run(arguments)
    except SystemExit as end:  # tyro's, on help and usage errors
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    finally:
        os.chdir(here)
    assert code in CODES, f"exit code {code}"
    return code


@cache
def _beside_commands() -> Files:
    """What the commands above name: a run, a rank table, hosts, another system's config."""
    tables = {
        f"{name}.json": to_json(make_rank_table(host, [0, 1]).model_dump())
        for name, host in {"table": "10.0.0.1", "other": "10.0.0.2"}.items()
    }
    logged = [{"type": "LOG", "step": [step], "data": {"train.loss": 1 / step}, "elapsedtime": step} for step in (1, 2)]
    return {
        "v.txt": b"[UNK]\n[CLS]\n[SEP]\n",
        **tables,
        **mindformers_seeds()[0],
        "hosts.txt": b"node1 slots=8\nme@node2 slots=8\n",
        "run/config.yaml": BASE.encode(),
        "run/metrics.jsonl": b"".join(to_json(record) + b"\n" for record in logged),
    }


def _lay_out(folder: Path) -> None:
    write_raw_corpus(folder)
    (folder / "run").mkdir()
    for name, content in _beside_commands().items():
        (folder / name).write_bytes(content)


def _arguments(path: Path) -> list[str]:
    """As the system hands them over: no text has a NUL, and there is a limit to each."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        value = []
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    return [
        word.replace("\0", "")[:20_000].encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        for word in words
    ]


@contextmanager
def _stubbed() -> Iterator[None]:
    def stop(*arguments: object, **named: object) -> Any:
        raise Done("understood")

    def train(name: str, recipe: Any, launch: LaunchOptions, *rest: object, **named: object) -> Any:
        launch.check()
        check_recipe(recipe, launch.world_size)
        stop()

    def preprocess(job: Any, *rest: object) -> Any:
        job.check()
        stop()

    instead = dict.fromkeys(STUBS, stop)
    instead |= {"paddock.jobs.train.train": train, "paddock.jobs.preprocess.run_preprocess": preprocess}
    with ExitStack() as stack:
        for name, function in instead.items():
            stack.enter_context(mock.patch(name, function))
        yield


@cache
def flag_words() -> tuple[str, ...]:
    flags = {word for line in COMMANDS for word in line.split() if word.startswith("-")}
    fields = {f"--{section}.{name}" for section, values in recipe_of_layouts().to_dict().items()
              if isinstance(values, dict) for name in values}  # fmt: skip
    return (
        *sorted(flags),
        *sorted(fields),
        *recipe_names(),
        "None",
        "auto",
        "true",
        "1,2",
        "[1, 2]",
        "--nnodes",
        "0",
        "-1",
    )


def damage_arguments(rng: Random, data: bytes) -> bytes:
    try:
        words = json.loads(data)
        assert isinstance(words, list)
    except (ValueError, AssertionError, RecursionError):
        words = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        new = rng.choice(
            (
                rng.choice(flag_words()),
                rng.choice(WORDS),
                str(rng.choice(NUMBERS)),
                "=".join(rng.choices(flag_words(), k=2)),
            )
        )
        place = rng.randrange(len(words) + 1)
        match rng.randrange(4):
            case 0 if words:
                words[place % len(words)] = new
            case 1 if words:
                del words[place % len(words)]
            case 2 if words:
                words.insert(place, words[place % len(words)])
            case _:
                words.insert(place, new)
    return to_json(words)


# The cases of a contribution

CASES = """\
- case_name: small
  desc: {run_dir: ., run_file: run_scripts/run_small.py}
  params:
    {model_name: small, batch_size: 4, step: 10, epoch: 1, dataset_path: "", lr: 0.01, device: cpu, autocast: false,
     nproc_per_node: 1, nnode: 1, others: {warm_up: 3, name: x}}
  expect: {loss_falls: true, metric: val.perplexity}
"""
CASE_FIELDS = """case_name desc params expect run_dir run_file model_name batch_size step epoch dataset_path lr device
autocast nproc_per_node nnode nnodes node_rank master_addr master_port others loss_falls metric log ..
../../etc/passwd /bin/true ~ run_scripts .""".split()


def case_seeds() -> list[Files]:
    return [{"model.yaml": CASES.encode(), "run_scripts/run_small.py": b"import argument\n"}]


def read_model_file(folder: Path) -> object:
    found = [(find_place(case, folder), as_flags(case.params.given())) for case in read_cases(folder / "model.yaml")]
    for place, _ in found:
        script = (place.contribution / place.run_dir / place.run_file).resolve()
        assert script.is_relative_to(folder.resolve()), script
    return found


def requirement_seeds() -> list[Files]:
    return [{"requirements.txt": b"paddock==0.1.0\nnumpy>=1,<3 ; python_version > '3'  # why\nx @ git+https://h/x@a\n"}]


def read_requirements(folder: Path) -> object:
    def releases(name: str) -> list[Release] | None:
        return None if name.startswith("x") else [Release(Version("1.5"))]

    fits = Finding("requirements", "passed", "they fit together")
    return check_requirements(Contribution.open(folder), releases, lambda those: fits)


# The variables of a launcher

VARIABLES: tuple[dict[str, str], ...] = (
    {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    | {"MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "1"},
    {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "80", "TORCHELASTIC_RESTART_COUNT": "0"},
)
NAMES = sorted({name for variables in VARIABLES for name in variables} | {"NO_COLOR", "XDG_CACHE_HOME", "GROUP_RANK"})


def variable_seeds() -> list[Files]:
    return [{"environment.json": json.dumps(variables).encode()} for variables in VARIABLES]


def read_variables(folder: Path) -> object:
    """What this process takes itself for, up to where it would look for others."""
    from paddock.devices import select
    from paddock.parallel.rendezvous import place_in_job
    from paddock.parallel.world import join_world

    variables = _variables(folder / "environment.json")
    kept = {name: value for name, value in os.environ.items() if name not in NAMES}
    with mock.patch.dict(os.environ, {**kept, **variables}, clear=True), _nobody_there():
        counts, world = process_counts(LaunchOptions()), world_of(LaunchOptions())
        worker_environment(LaunchOptions(nproc_per_node=2))
        try:
            with join_world(select("cpu")) as joined:
                return counts, world, joined.rank, joined.size, under_torchrun()
        except Done:
            return counts, world, place_in_job(), under_torchrun()


def _variables(path: Path) -> dict[str, str]:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    pairs = value.items() if isinstance(value, dict) else []
    texts = {str(name).replace("=", ""): str(one) for name, one in pairs}
    return {name: one.replace("\0", "") for name, one in texts.items() if name in NAMES and one.isprintable()}


@contextmanager
def _nobody_there() -> Iterator[None]:
    """Meeting others is not tried: it would wait for them."""
    import torch.distributed as dist

    def meet(*arguments: object) -> Any:
        raise Done("the environment was understood")

    with ExitStack() as stack:
        for name in ("init_process_group", "new_group", "destroy_process_group"):
            stack.enter_context(mock.patch.object(dist, name))
        for name in ("reach_store", "serve_store"):
            stack.enter_context(mock.patch(f"paddock.parallel.reach.{name}", meet))
        yield


def damage_variables(rng: Random, data: bytes) -> bytes:
    try:
        variables = json.loads(data)
    except (ValueError, RecursionError):
        return damage_bytes(rng, data)
    if not isinstance(variables, dict) or rng.random() < 0.2:
        return to_json(damage_values(rng, variables, NAMES))
    value = rng.choice((str(rng.choice(NUMBERS)), odd_text(rng), "²", " 1 ", "1_0", "0x2", "+1", "１", "9" * 5000))
    return to_json({**variables, rng.choice(NAMES): value})


def cluster_seeds() -> list[Files]:
    """A rank table, a list of hosts, and the variables of a step of SLURM."""
    table = merge_rank_tables([(name, make_rank_table(name, [0, 1])) for name in ("10.0.0.1", "10.0.0.2")])
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[01-02]", "SLURM_NODEID": "1"}
    libai = {"NODE": "2", "NODE_RANK": "1", "ADDR": "10.0.0.1", "PORT": "12345"}
    hosts = b"node1 slots=8\nme@node2 slots=8 max_slots=9 # a\n[fd00::3]:8\n"
    return [
        {"table.json": to_json(table.model_dump()), "hosts.txt": hosts, "step.json": to_json(said)}
        for said in (step, libai)
    ]


def read_cluster(folder: Path) -> object:
    """Each of the three, and what the one that is read says."""
    said = json.loads((folder / "step.json").read_bytes()) if _is_json(folder / "step.json") else {}
    pairs = said.items() if isinstance(said, dict) else []
    variables = {str(name): str(value) for name, value in pairs}
    table = problems_of(read_rank_table(folder / "table.json"))
    hosts = read_hosts(folder / "hosts.txt")
    return table, [host.address for host in hosts], placed(LaunchOptions(), [], variables)[1]


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError, FileNotFoundError):
        return False
    return True


TABLE_WORDS = ("1.0", "server_list", "device", "rank_id", "completed", "10.0.0.1", "0")
STEP_WORDS = ("SLURM_STEP_NODELIST", "node[01-", "node[0-999999999]", "²", "１", "9" * 5000, "4294967291", "1(x2)")
READERS = [
    Reader(
        "cluster",
        cluster_seeds,
        read_cluster,
        {"table.json": json_mutator(TABLE_WORDS), "step.json": json_mutator(STEP_WORDS), ".txt": damage_text},
        share=0.5,
    ),
    Reader("recipe", recipe_seeds, read_recipe, {".yaml": yaml_mutator(FIELDS)}),
    Reader("layout", layout_seeds, read_layout, {"layout": damage_layout}, share=0.5),
    Reader("command_line", command_seeds, read_command, {".json": damage_arguments}, fresh=True, share=0.5),
    Reader("model_file", case_seeds, read_model_file, {".yaml": yaml_mutator(tuple(CASE_FIELDS))}, share=0.5),
    Reader("requirements", requirement_seeds, read_requirements, {".txt": damage_text}, share=0.3),
    Reader("environment", variable_seeds, read_variables, {".json": damage_variables}, share=0.5),
]
