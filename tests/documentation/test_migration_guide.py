"""The migration guide, in both languages: every command of theirs has a row, and every one of ours in it runs, small
where the real one is large; of those for several processes one a system with two, the others as dry runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.config.recipe import Recipe
from paddock.testing.guides import sections
from paddock.testing.samples.contributions import finished
from paddock.testing.samples.foreign_configs import write_libai, write_mindformers
from paddock.testing.samples.images import write_folder
from paddock.testing.samples.texts import sample_texts, write_lines, write_prompts, write_squad
from paddock.testing.tiny import losses

FOLDER = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = FOLDER / "migration.md"
HEADINGS = ("OneFlow-GPT", "LiBai", "MindFormers", "ImageNet", "Tecorigin", "torchtitan")
"""A word of each section's title, in both languages."""
OF_GPT = """--model.layers 2 --model.hidden 32 --model.heads 4 --data.sequence-length 16 --model.context 16
  --model.vocab 384 --batch.micro 1 --batch.global 2 --batch.accumulation None --precision.compute float32 --steps 2
  --evaluate.every None --schedule.decay-steps None --schedule.warmup 0"""
OF_RESNET = """--model.width 8 --model.classes 2 --data.image-size 32 --batch.micro None --batch.global 4
  --evaluate.every None --data.workers 0"""
SMALLER = {
    "OneFlow-GPT": OF_GPT,
    "LiBai": "--steps 2 --evaluate.every None --precision.compute float32",
    "MindFormers": f"{OF_GPT} --train.epochs None",
    "ImageNet": f"{OF_RESNET} --steps 1",
    "Tecorigin": f"{OF_RESNET} --steps 1",
    "torchtitan": "--evaluate.every None --model.layers 1",
}
"""What is said behind training commands that run here."""
MAGIC = "train.train_iter=2 train.log_period=1 --evaluate.every None"
THEIRS = Path(__file__).parent / "data" / "commands_elsewhere.txt"
TWO = {
    "gpt2/pretrain-1n8d": "--parallel.tensor 2 --parallel.data 1",
    "resnet50 imagenet --nproc_per_node 4 --multi": "",
    "resnet50 --dummy --nproc_per_node 4": "",
    "--num_gpus 8 --deepspeed": "--steps 2",
}
"""Commands for several processes that train with two here, and what is said behind them; of LiBai and MindFormers it is
one that generates."""
PROCESSES = re.compile(r"(--(?:nproc.per.node|num.gpus(?:.per.node)?)) \d+")
SEVERAL = re.compile(r"--(nproc.per.node|nnodes?|num.gpus(.per.node)?|num.nodes) ([2-9]|\d\d)|--rank-table")


def commands_of(guide: Path) -> dict[str, list[str]]:
    """Our commands in the last columns of the tables, by system."""
    found: dict[str, list[str]] = {}
    for section in guide.read_text(encoding="utf-8").split("\n## ")[1:]:
        [name] = [heading for heading in HEADINGS if heading in section.splitlines()[0]]
        rows = [line.rstrip(" |").rpartition(" | ")[2] for line in section.splitlines() if line.startswith("| ")]
        found[name] = [row.strip("`") for row in rows if row.startswith("`paddock ")]
    return found


def rows_of(guide: Path) -> dict[str, list[str]]:
    """The first columns of the tables, by system."""
    found: dict[str, list[str]] = {}
    for section in guide.read_text(encoding="utf-8").split("\n## ")[1:]:
        [name] = [heading for heading in HEADINGS if heading in section.splitlines()[0]]
        lines = section.splitlines()
        found[name] = [line.partition(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    return found


def theirs() -> list[tuple[str, str]]:
    """The commands of other systems, each with the system."""
    found, system = [], ""
    for line in THEIRS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            system = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            found.append((system, line))
    return found


def has_row(command: str, rows: list[str]) -> bool:
    """Whether a command stands in a row as it is; of one that begins with ~, whether all of its words stand in one."""
    if not command.startswith("~ "):
        return any(f"`{command}`" in row for row in rows)
    words = [re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])") for word in command.split()[1:]]
    return any(all(word.search(row) for word in words) for row in rows)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """What those who migrate have already, small: corpora, vocabularies, configs, images, prompts."""
    folder = tmp_path
    write_lines(folder / "my-corpus.json", sample_texts(40))
    symbols = [*sorted(ByteLevel.alphabet()), "<|endoftext|>"]
    (folder / "gpt2-vocab.json").write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}))
    (folder / "gpt2-merges.txt").write_text("#version: 0.2\n")
    write_lines(folder / "passages.jsonl", sample_texts(2))
    write_prompts(folder / "prompts.txt", 30)
    write_folder(folder / "imagenet", ("one", "two"), {"train": 4, "val": 2})
    write_squad(folder / "squad", 6, 2)
    _configs(folder)
    (folder / "ds_config.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}})
    )
    return folder


def _configs(folder: Path) -> None:
    """Those of MindFormers and LiBai, under the names that the guide has."""
    write_mindformers(folder / "mindformers")
    shutil.copytree(folder / "mindformers" / "gpt2", folder / "configs" / "gpt2")
    (folder / "configs/gpt2/run_small.yaml").rename(folder / "configs/gpt2/run_gpt2_13b.yaml")
    write_libai(folder)
    (folder / "projects/MT5/configs/mt5_small.py").rename(folder / "projects/MT5/configs/mt5_pretrain.py")
    magic = folder / "projects" / "MagicPrompt" / "configs" / "gpt2_training.py"
    magic.parent.mkdir(parents=True)
    text = (folder / "configs" / "gpt_small.py").read_text()
    text = text.replace("from .common", "from configs.common")
    magic.write_text(text.replace('"vocab.json"', '"gpt2-vocab.json"').replace('"merges.txt"', '"gpt2-merges.txt"'))


def smaller(system: str, command: str) -> list[str]:
    """The command as it is run here: small, and what is for several processes with two of them or as a dry run."""
    words = shlex.split(command)[1:]
    if words[0] == "resume":
        return [*words[:-1], "3"]
    if words[0] != "train" or "--dry-run" in words:
        return words
    if SEVERAL.search(command):
        two = next((said for begin, said in TWO.items() if begin in command), None)
        if two is not None:
            words = shlex.split(PROCESSES.sub(r"\1 2", command))[1:]
            return [*words, *SMALLER[system].split(), *two.split()]
        layers = ["model.cfg.hidden_layers=4"] if "pipeline_parallel_size=8" in command else []
        return [*words, *layers, "--dry-run"]
    added = MAGIC if "MagicPrompt" in command else SMALLER[system]
    if "--benchmark" in words:
        added = OF_RESNET.replace("--evaluate.every None", "")
    if "-e" in words:
        added = OF_RESNET
    return [*words, *added.split()]


@pytest.mark.parametrize("guide", [GUIDE, FOLDER / "migration.zh.md"], ids=["en", "zh"])
def test_every_command_of_theirs_has_a_row(guide: Path) -> None:
    rows, commands = rows_of(guide), theirs()
    assert [command for system, command in commands if not has_row(command, rows[system])] == []
    assert {system for system, _ in commands} == set(HEADINGS) - {"torchtitan"} and len(commands) > 70


def test_a_row_that_is_not_there_is_missed() -> None:
    rows = rows_of(GUIDE)["ImageNet"]
    without = [row for row in rows if row != "`python3 main.py`"]
    assert has_row("python3 main.py", rows) and not has_row("python3 main.py", without)
    assert has_row("~ pipeline.py 1", rows) and not has_row("~ pipeline.py 3", rows)


def needs_more(command: str) -> bool:
    """Whether it generates or evaluates with more processes than two."""
    found = SEVERAL.search(command)
    return found is not None and not command.startswith("paddock train") and found[0] != "--nproc-per-node 2"


def test_both_languages_have_the_same_commands() -> None:
    chinese = FOLDER / "migration.zh.md"
    assert commands_of(GUIDE) == commands_of(chinese)
    assert sections(GUIDE) == sections(chinese)
    assert sum(map(len, commands_of(GUIDE).values())) > 50


def follow(system: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    for command in commands_of(GUIDE)[system]:
        if needs_more(command):
            continue  # in a test of its own
        capfd.readouterr()
        assert run(smaller(system, command)) == 0, f"{command}\n{capfd.readouterr().err}"
        if "zoo new" in command:
            finished(place / "my_resnet")  # what people write themselves


def test_oneflow_gpt(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(SMALLER, "OneFlow-GPT", f"{OF_GPT} --log.every 1 --tokenizer-type GPT2BPETokenizer "
                        "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt")  # fmt: skip
    follow("OneFlow-GPT", place, monkeypatch, capfd)
    assert len(losses(place / "model_save")) == 2
    assert load_recipe(place / "checkpoint" / "config.yaml").parallel.recompute == "full"
    [container] = [command for command in commands_of(GUIDE)["OneFlow-GPT"] if " launch container " in command]
    capfd.readouterr()
    assert run([*shlex.split(container.partition(" -- ")[2]), "--dry-run"]) == 0, capfd.readouterr().err
    assert "initial_scale: 4294967296.0" in capfd.readouterr().out
    [several] = runs_of_two(place)
    assert several.parallel.tensor == 2


def test_libai(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    text = "王芳在北京看见了三只黑猫。"
    write_lines(place / "zh.jsonl", [text * 6] * 30)
    ours = sorted(set(text))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ours, *(chr(0x4E00 + number) for number in range(100))]
    (place / "vocab.txt").write_text("".join(f"{token}\n" for token in dict.fromkeys(tokens)), encoding="utf-8")
    split = "--tokenizer-name BertTokenizer --vocab-file vocab.txt --do-lower-case --split-sentences"
    assert run(["preprocess", "--input", "zh.jsonl", "--output-prefix", "zh", *split.split()]) == 0
    first, *rest = commands_of(GUIDE)["LiBai"]
    assert run(smaller("LiBai", first)) == 0
    assert run(["convert", "runs/mt5", "data_test"]) == 0  # in the place of a download
    assert len(losses(place / "runs/mt5")) == 2
    for command in rest:
        capfd.readouterr()
        assert run(smaller("LiBai", command)) == 0, f"{command}\n{capfd.readouterr().err}"
    assert load_recipe(place / "mt5.yaml").task == "span_corruption"


def test_mindformers(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    _corpus(place)
    _other_servers(place)
    follow("MindFormers", place, monkeypatch, capfd)
    assert len(losses(place / "runs/gpt2_13b")) == 2
    block, further = [block for block in sections(GUIDE)[3] if block.kind == "python"]
    names: dict[str, Any] = {}
    tiny = '"bert_tiny", overrides={"train.steps": 1, "batch.global": 4, "batch.micro": 4}'
    exec(block.text.replace('"qa_bert_base_uncased"', tiny), names)  # noqa: S102  the guide is ours
    said = capfd.readouterr().out
    assert "QA Metric = {" in said and "'exact_match'" in said and "'start'" in said
    assert run(["convert", str(names["trainer"].run_dir), "bert_base_uncased"]) == 0  # in the place of a download
    exec(further.text, names)  # noqa: S102
    assert len(losses(names["trainer"].run_dir)) == 1


def test_the_imagenet_example(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    _corpus(place)
    magic = "--steps 1 --model.layers 2 --model.hidden 32 --model.heads 4 --evaluate.every None --run-dir runs/prompts"
    assert run(["train", "gpt2/magicprompt-tiny", "--data.path", "prompts.txt", *magic.split()]) == 0
    follow("ImageNet", place, monkeypatch, capfd)
    assert runs_of_two(place)


def test_tecorigin(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    follow("Tecorigin", place, monkeypatch, capfd)
    assert runs_of_two(place)


def test_torchtitan_and_deepspeed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    follow("torchtitan", place, monkeypatch, capfd)
    assert runs_of_two(place)


def runs_of_two(place: Path) -> list[Recipe]:
    """The recipes of what was trained with two processes."""
    about = {path.parent: json.loads(path.read_text()) for path in place.glob("runs/*/environment.json")}
    return [
        load_recipe(folder / "config.yaml")
        for folder, told in about.items()
        if told["processes"]["nproc_per_node"] == 2
    ]


@pytest.mark.slow
def test_several_processes(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """What generates and measures over four processes, after what it needs."""
    test_the_imagenet_example(place, monkeypatch, capfd)
    several = [line for lines in commands_of(GUIDE).values() for line in lines if needs_more(line)]
    assert len(several) == 2
    for command in several:
        words = shlex.split(command)[1:]
        assert run(words) == 0, f"{command}\n{capfd.readouterr().err}"


def _other_servers(place: Path) -> None:
    """The rank tables of three more machines, which are joined to that of the first."""
    table: dict[str, Any] = {"version": "1.0", "server_count": "3", "server_list": [], "status": "completed"}
    for server in range(1, 4):
        address = f"10.155.111.{140 + server}"
        ranks = range(8 * (server - 1), 8 * server)
        devices = [
            {"device_id": str(rank % 8), "device_ip": f"192.{rank % 4 + 1}.27.{6 + rank}", "rank_id": str(rank)}
            for rank in ranks
        ]
        table["server_list"].append({"server_id": address, "device": devices, "host_nic_ip": "reserve"})
    (place / "server1.json").write_text(json.dumps(table))


def _corpus(place: Path) -> None:
    """What the first command of the guide makes."""
    if not (place / "gpt_sample_dataset_text_document.bin").exists():
        assert run(smaller("OneFlow-GPT", commands_of(GUIDE)["OneFlow-GPT"][0])) == 0
