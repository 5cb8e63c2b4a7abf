"""What does not fit together among machines, from what they say of themselves."""

from __future__ import annotations

from dataclasses import replace

import paddock
from paddock.errors import MachineError
from paddock.launch.facts import Facts, Finding, compare, flat, own_facts, refusal
from paddock.messages import error_to_json

VERSIONS = {"paddock": "1.0", "torch": "2.13.0", "torch_npu": "2.13.0"}


def machines(count: int) -> list[Facts]:
    recipe = {"model.layers": "2", "batch.global": "8"}
    return [Facts(number, f"host{number}", 8, VERSIONS, "npu", 8, recipe) for number in range(count)]


def refused(all_facts: list[Facts]) -> MachineError:
    error = refusal(all_facts, compare(all_facts))
    assert error is not None and error.exit_code == 3
    return error


def test_machines_that_are_alike_are_ready() -> None:
    assert compare(machines(4)) == []
    assert refusal(machines(4), []) is None


def test_the_machine_with_another_version_is_named_and_told_what_to_install() -> None:
    found = machines(4)
    found[2] = replace(found[2], versions={**VERSIONS, "torch": "2.12.0"})
    error = refused(found)
    assert error.what == "machine 2 (host2) is not ready"
    assert error.why == "machine 2: torch 2.12.0, and 2.13.0 elsewhere"
    assert error.fix == "machine 2: install torch 2.13.0 there, as elsewhere"


def test_it_is_machine_0_if_all_others_agree() -> None:
    found = machines(3)
    found[0] = replace(found[0], versions={"paddock": "0.9", "torch": "2.13.0"})
    assert refused(found).what == "machine 0 (host0) is not ready"
    assert refused(found).why.splitlines() == [
        "machine 0: paddock 0.9, and 1.0 elsewhere",
        "       machine 0: torch_npu missing, and 2.13.0 elsewhere",
    ]


def test_of_two_machine_0_is_the_yardstick() -> None:
    found = machines(2)
    found[0] = replace(found[0], versions={**VERSIONS, "paddock": "0.9"})
    assert refused(found).why == "machine 1: paddock 1.0, and 0.9 elsewhere"


def test_unequal_devices_and_processes() -> None:
    found = machines(4)
    found[1] = replace(found[1], devices=7)
    error = refused(found)
    assert "machine 1: 8 processes, and 7 npu devices to be seen" in error.why
    assert "--nproc-per-node 7" in error.fix
    enough = [replace(one, processes=4) for one in found]
    assert refusal(enough, compare(enough)) is None
    assert compare(enough) == [
        Finding(1, "7 npu devices, and 8 elsewhere: one may have failed", prevents=False),
    ]
    found[1] = replace(found[1], devices=8, processes=4)
    assert "machine 1: --nproc-per-node 4, and 8 elsewhere" in refused(found).why
    found[1] = replace(found[1], processes=8, device="cpu", devices=None)
    assert "machine 1: device cpu, and npu elsewhere" in refused(found).why


def test_the_fields_of_another_recipe_are_listed() -> None:
    found = machines(3)
    found[1] = replace(found[1], recipe={"model.layers": "4", "batch.global": "8", "log.every": "1"})
    assert refused(found).why == (
        "machine 1: model.layers = 4, and 2 elsewhere and log.every = 1, and nothing elsewhere"
    )


def test_places_of_the_data_may_differ() -> None:
    recipe = {"data": {"path": "/disk1/corpus", "source": "indexed", "split": [9, 1]}, "checkpoint": {}}
    assert flat(recipe) == {"data.source": '"indexed"', "data.split": "[9, 1]", "checkpoint": "{}"}


def test_a_machine_that_cannot_take_part_says_why() -> None:
    found = machines(3)
    gone = MachineError('device "npu" cannot be used on this machine', why="no npu device is visible", fix="look")
    found[2] = Facts(2, "host2", 8, {}, "npu", error=error_to_json(gone))
    error = refused(found)
    assert error.why == 'machine 2: device "npu" cannot be used on this machine: no npu device is visible'
    assert error.fix == "machine 2: look"


def test_many_bad_machines_do_not_fill_the_screen() -> None:
    found = machines(100)
    found[30:] = [replace(one, device="cpu") for one in found[30:]]
    error = refused(found)
    assert error.what == f"{', '.join(f'machine {n} (host{n})' for n in range(8))} and 22 more are not ready"
    assert len(error.why.splitlines()) == 9


def test_what_this_machine_says_of_itself() -> None:
    facts = own_facts(3, 2, "cpu", {"train": {"steps": 6}})
    assert facts.versions["paddock"] == paddock.__version__
    assert (facts.machine, facts.processes, facts.device, facts.devices) == (3, 2, "cpu", None)
    assert Facts.from_json(replace(facts, place=("10.0.0.1", 5)).to_json()) == replace(facts, place=("10.0.0.1", 5))
    absent = own_facts(3, 2, "sdaa", {})
    assert absent.error is not None and "sdaa" in absent.error["what"]
