"""What is known of the recipes: from files of results, which are well-formed and of recipes that there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.config.load import SHIPPED, recipe_names
from paddock.errors import DataError
from paddock.telemetry.format import count
from paddock.testing.simulated import Injection, write_package
from paddock.zoo.catalogue import COLUMNS, FILE, KnownResult, catalogue, read_results, write_results

ROW = {
    "recipe": "gpt2/tiny",
    "kind": "layout",
    "name": "tp2",
    "value": 6.1e-8,
    "detail": "20 steps",
    "precision": "float32",
    "machine": "x86_64",
    "torch": "2.13.0",
    "date": "2026-01-01",
    "command": "paddock check parity gpt2/tiny --layouts tp2",
}


def test_results_are_of_recipes_that_ship() -> None:
    results = [result for path in SHIPPED.glob(f"*/{FILE}") for result in read_results(path)]
    assert results and {result.recipe for result in results} <= set(recipe_names())
    assert all(result.command.startswith("paddock ") and result.recipe in result.command for result in results)
    assert all(result.value <= 1e-5 for result in results if result.kind == "layout")


def test_no_device_is_listed_that_is_the_reference_or_does_not_exist() -> None:
    rows = [result for path in SHIPPED.glob(f"*/{FILE}") for result in read_results(path)]
    assert not {row.name for row in rows if row.kind == "device"} & {"cpu", "simulated"}


def measure(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """`benchmarks/zoo_results.py`, where a simulated device can be found."""
    root = Path(__file__).parents[2]
    places = os.pathsep.join([str(folder / "site"), str(root)])
    command = [sys.executable, str(root / "benchmarks" / "zoo_results.py"), "gpt2/tiny", *flags]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True)


@pytest.mark.slow
def test_devices_that_align_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that computes as the CPU does has a row, and one that does not has none."""
    write_package(tmp_path / "site", "npu")
    known = tmp_path / "known"
    done = measure(tmp_path, "--device", "npu", "--folder", str(known))
    assert done.returncode == 0, done.stderr
    [row] = read_results(known / "gpt2" / FILE)
    assert (row.kind, row.name, row.precision) == ("device", "npu", "float32") and row.value < 1e-5
    assert row.command == "paddock align --model gpt2/tiny --device npu --layers"
    [entry] = [entry for entry in catalogue(known) if entry.recipe.name == "gpt2/tiny"]
    monkeypatch.setattr("paddock.zoo.catalogue.catalogue", lambda: [entry])
    assert run(["zoo", "list"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert line[head.index("devices aligned") :].split()[0] == "npu"
    assert run(["zoo", "show", "gpt2/tiny"]) == 0
    assert f"shown by: {row.command}" in capsys.readouterr().out
    write_package(tmp_path / "site", "npu", injections=[vars(Injection("aten.gelu"))])
    wrong = measure(tmp_path, "--device", "npu", "--folder", str(tmp_path / "none"))
    assert wrong.returncode == 0 and "npu is not aligned: layers." in wrong.stderr
    assert not list(tmp_path.glob("none/**/*.csv"))


@pytest.mark.slow
def test_devices_that_have_no_row(tmp_path: Path) -> None:
    write_package(tmp_path / "site", "npu")
    reasons = {"cpu": "it is what devices are compared with", "npu": "a simulated one", "sdaa": "is not installed"}
    for name, why in reasons.items():
        done = measure(tmp_path, "--device", name)
        assert done.returncode == 2 and why in done.stderr, (name, done.returncode, done.stderr)


def test_results_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    write_results(path, [KnownResult(**ROW), KnownResult(**ROW | {"name": "dp2"})])
    write_results(path, [KnownResult(**ROW | {"value": 1e-7})])
    assert [(one.name, one.value) for one in read_results(path)] == [("tp2", 1e-7), ("dp2", 6.1e-8)]


def test_layouts_that_agree_in_float64_alone_are_told_apart() -> None:
    entry = catalogue()[0]
    rows = [KnownResult(**ROW), KnownResult(**ROW | {"name": "pp2", "precision": "float64"})]
    assert replace(entry, results=tuple(rows)).layouts() == "tp2; pp2 (float64 only)"


@pytest.mark.parametrize(
    "text",
    [
        f"{','.join(COLUMNS)}\ngpt2/tiny,layout,tp2,much,,float32,x,2.13,2026-01-01,c\n",
        f"{','.join(COLUMNS)}\ngpt2/tiny,colour,tp2,1,,float32,x,2.13,2026-01-01,c\n",
        f"{','.join(COLUMNS)}\ngpt2/tiny,layout\n",
        f"{','.join(COLUMNS)},more\ngpt2/tiny,layout,tp2,1,,float32,x,2.13,2026-01-01,c,d\n",
        f"{','.join(COLUMNS)}\ngpt2/tiny,layout,tp2,1,,float32,x,2.13,2026-01-01,c,d\n",
        f'{",".join(COLUMNS)}\n"gpt2',
    ],
)
def test_files_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match=FILE):
        read_results(tmp_path / FILE)


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["zoo", "list", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    known = {entry.recipe.name: entry for entry in catalogue()}
    assert listed.keys() == known.keys()
    proven = next(name for name, entry in known.items() if entry.named("layout"))
    assert listed[proven]["layouts"] == known[proven].named("layout")
    assert run(["zoo", "list"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{proven} ")]
    assert known[proven].layouts() in line
    assert run(["zoo", "show", proven]) == 0
    page = capsys.readouterr().out
    assert all(result.command in page for result in known[proven].results)
    assert run(["zoo", "list", "--task", known[proven].recipe.task]) == 0
    assert {line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]} == {known[proven].recipe.task}
    assert run(["zoo", "show", "resnet50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "resnet/50"


SIZES = {"gpt2/117m": ("language_modeling", "124M"), "resnet/50": ("image_classification", "25.6M")}
"""As everybody counts them."""


def cells(head: str, line: str, columns: list[str]) -> dict[str, str]:
    """The cells of a line of a table, below the words of its head."""
    begins = [head.index(column) for column in columns] + [None]
    return {column: line[begins[at] : begins[at + 1]].strip() for at, column in enumerate(columns)}


def test_the_list_has_task_size_and_result_of_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(["zoo", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line.split() for line in lines}
    entries = catalogue()
    assert [line.split()[0] for line in lines] == [entry.recipe.name for entry in entries]
    for name, (task, size) in SIZES.items():
        assert shown[name][1:3] == [task, size]
    columns = ["layouts proven", "devices aligned", "result", "also called"]
    for entry, line in zip(entries, lines, strict=True):
        assert line.split()[1:3] == [entry.recipe.task, count(entry.recipe.parameters)]
        told = cells(head, line, columns)
        assert told["result"] == (entry.headline() or "–") and told["also called"] == " ".join(entry.recipe.aliases)
        assert told["devices aligned"] == (" ".join(entry.named("device")) or "–")
    reached = [entry for entry in entries if entry.reached()]
    assert reached and all(entry.headline().startswith("val.") for entry in reached)


def test_the_page_of_a_recipe_has_its_task_its_size_and_its_results(capsys: pytest.CaptureFixture[str]) -> None:
    entry = next(entry for entry in catalogue() if entry.reached())
    assert run(["zoo", "show", entry.recipe.name]) == 0
    lines = capsys.readouterr().out.splitlines()
    recipe = entry.recipe
    assert lines[0] == f"{recipe.name}: {recipe.family}, {recipe.parameters:,} parameters ({count(recipe.parameters)})"
    assert lines[1].split() == ["task", recipe.task]
    for result in entry.results:
        if result.kind == "metric":
            begin = [result.name, f"{result.value:g}"]
            assert [line for line in lines if line.split()[:2] == begin and result.machine in line], result


@pytest.mark.parametrize(
    "words", [["show", "gpt3"], ["show", "resnet/base"], ["list", "--task", "cooking"], ["tell"], []]
)
def test_what_there_is_not(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["zoo", *words]) == 2
