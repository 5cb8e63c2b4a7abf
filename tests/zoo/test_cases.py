"""Cases of contributions, run: what is wrong with their end or their log is told, and what is right is measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from paddock.cli.main import run
from paddock.testing.simulated import write_package
from paddock.zoo.cases import RunOptions
from paddock.zoo.check import CheckPlan, check_contribution
from paddock.zoo.findings import Finding, Report
from paddock.zoo.report import junit, markdown, page
from paddock.zoo.sandbox import Limits

QUICK = RunOptions(limits=Limits(memory=2**30, disk=2**24, output=2**20, processes=40, grace=0.3))
SCRIPT = "run_scripts/run_small.py"


def check(folder: Path, options: RunOptions = QUICK) -> Report:
    return check_contribution(CheckPlan(folder, run=options, index="file:///"))


def reasons(report: Report) -> list[str]:
    return [finding.what for finding in report.failures]


def test_a_good_case_is_measured(quick: Path) -> None:
    report = check(quick)
    assert report.passed and not report.unchecked, reasons(report)
    case = report.cases["small"]
    assert (case.ips, case.metrics) == (10.0, {"val.perplexity": 3.0})
    assert case.first_loss is not None and case.last_loss is not None and case.last_loss < case.first_loss
    assert not (quick / "log.jsonl").exists()  # it ran on a copy


LOG = 'import json, sys\nlog = open("log.jsonl", "w")\n'
RECORD = '{"type": "LOG", "step": [0, 1], "data": {"train.loss": 1.5, "train.ips": 9.0}}'
BROKEN: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "it fails": ("raise SystemExit(4)", "exit status 4"),
    "it crashes": ("import os; os.abort()", "it was ended by SIGABRT"),
    "it imports what is not there": ("import tcap_dllogger_of_nobody", "exit status 1"),
    "it writes no log": ("print('loss: 0.5')", "there is no unified log"),
    "its log is no JSON": (LOG + f"log.write('{RECORD}\\n' + '{{broken\\n' + '{RECORD}\\n')", "the log does not parse"),
    "it has no loss": (LOG + f"log.write('{RECORD}'.replace('train.loss', 'loss'))", "the log has no train.loss"),
    "it has no speed": (LOG + f"log.write('{RECORD}'.replace('train.ips', 'ips'))", "the log has no train.ips"),
    "its speed is zero": (LOG + f"log.write('{RECORD}'.replace('9.0', '0.0'))", "train.ips is not always a positive"),
    "its loss is no number": (
        LOG + f"log.write('{RECORD}'.replace('1.5', '\"nan\"'))",
        "the loss is nan at step [0, 1]",
    ),
    "its loss is infinite": (
        LOG + f"log.write('{RECORD}'.replace('1.5', '\"inf\"'))",
        "the loss is inf at step [0, 1]",
    ),
    "its loss is exactly 0": (
        LOG + f"log.write('{RECORD}'.replace('1.5', '0'))",
        "the loss is exactly 0 at step [0, 1]",
    ),
    "its loss rises": (
        LOG + f"log.write('{RECORD}\\n' + '{RECORD}'.replace('0, 1', '0, 2').replace('1.5', '1.6'))",
        "the loss does not fall: 1.5 at the beginning, 1.6 at the end",
    ),
    "it does not heed --step": (
        LOG + f"[log.write('{RECORD}\\n'.replace('0, 1', f'0, {{step}}')) for step in range(50)]",
        "the log has 50 steps, and --step asked for 10",
    ),
    "it does not validate": (LOG + f"log.write('{RECORD}')", "the log has no val.perplexity, which the case expects"),
    "it leaves a process behind": (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10000)'])",
        "it left processes behind: python",
    ),
    "it prints without end": ("while True: print('x' * 1000)", "it printed more than 1.0 MB"),
    "it fills the disk": (
        "open('big', 'wb').write(b'x' * 2**26)",
        ("exit status 1: it may write 16.8 MB", "it wrote more than 16.8 MB"),  # who sees it first
    ),
    "it takes all memory": ("block = bytearray(2**34)", "exit status 1: it may have 1.1 GB of memory"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_case_that_fails_is_refused_for_its_reason(name: str, quick: Path) -> None:
    code, reason = BROKEN[name]
    (quick / SCRIPT).write_text(code)
    report = check(quick)
    assert any(said.startswith(reason) for said in reasons(report)), reasons(report)


def test_the_mean_of_an_epoch_is_no_step(quick: Path) -> None:
    """And a loss that is no number is told as JSON tells it."""
    mean = RECORD.replace("[0, 1]", "[0]").replace("1.5", '"nan"')
    script = (quick / SCRIPT).read_text()
    (quick / SCRIPT).write_text(script + f"\nopen('log.jsonl', 'a').write('{mean}\\n')")
    assert check(quick).passed
    (quick / SCRIPT).write_text(LOG + f"log.write('{mean}')")
    assert check(quick).to_dict()["cases"]["small"]["last_loss"] == "nan"


def test_a_validation_has_a_metric(quick: Path) -> None:
    model = quick / "model.yaml"
    model.write_text(model.read_text().replace("{loss_falls: true, metric: val.perplexity}", "{}"))
    for name, passes in (("loss", False), ("ips", False), ("top1", True)):
        record = RECORD.replace('"train.ips"', f'"val.{name}": 2.0, "train.ips"')
        (quick / SCRIPT).write_text(LOG + f"log.write('{record}')")
        assert reasons(check(quick)) == ([] if passes else ["it validates, and the log has no metric (val.NAME)"])


def test_a_case_that_never_ends(quick: Path) -> None:
    (quick / SCRIPT).write_text("while True: pass")
    options = RunOptions(limits=Limits(seconds=1.0, memory=2**30, disk=2**24))
    assert "it did not end within 1.0s" in reasons(check(quick, options))


def test_a_case_without_an_end_is_not_begun(quick: Path) -> None:
    model = quick / "model.yaml"
    model.write_text(model.read_text().replace("step: 10", "step: -1"))
    assert "step = -1: it would train to its end" in reasons(check(quick))
    assert check(quick, RunOptions(steps=3, limits=QUICK.limits)).passed


def test_the_parameters_that_a_script_gets(quick: Path) -> None:
    """The device and the steps that were asked for, and the rest as model.yaml has it."""
    (quick / SCRIPT).write_text("import sys; raise SystemExit(' '.join(sys.argv[1:]))")
    [finding] = check(quick, RunOptions(device="npu", steps=3, limits=QUICK.limits)).failures
    said = " ".join(finding.fix.split())
    assert said.startswith("it said last: --model_name small --batch_size 4 --step 3 --device npu --epoch 1")
    assert "--dataset_path --lr 0.01 --autocast False --nproc_per_node 1 --nnode 1" in said


def device_of(report: Report) -> Finding:
    [finding] = [finding for finding in report.findings if finding.check == "case small: device"]
    return finding


def on(device: str) -> RunOptions:
    return RunOptions(device=device, limits=QUICK.limits)


def test_a_case_runs_on_the_device_that_is_asked_for(quick: Path) -> None:
    """Its log says so, and says `npu:0`."""
    report = check(quick, on("npu"))
    assert report.passed and device_of(report).what == "it ran on npu, says its log"
    assert check(quick, on("npu:1")).passed and check(quick, on("auto")).passed


@pytest.mark.parametrize("place", ["the log", "beside the log"])
def test_a_script_that_does_not_heed_the_device_is_refused(place: str, quick: Path) -> None:
    script = quick / SCRIPT
    script.write_text(
        script.read_text().replace("{arguments.device}:0", "cuda:0" if place == "the log" else "Model 9000")
    )
    if place == "beside the log":
        script.write_text(script.read_text() + "\nopen('environment.json', 'w').write('{\"device\": \"cuda\"}')")
    report = check(quick, on("npu"))
    assert {finding.check for finding in report.failures} == {"case small: device"}
    assert device_of(report).what == "it ran on cuda, and npu was asked for"


@pytest.mark.parametrize("said", ["", "Model 9000 (32 GB)", "0"])
def test_where_no_log_says_the_device_it_is_not_verified(said: str, quick: Path) -> None:
    """Nor does a file say it that was there before."""
    script = quick / SCRIPT
    script.write_text(script.read_text().replace("{arguments.device}:0", said))
    (quick / "environment.json").write_text('{"device": "npu"}')
    report = check(quick, on("npu"))
    assert report.passed and device_of(report).status == "NOT CHECKED" and "not verified" in device_of(report).what


@pytest.mark.parametrize("text", ["{", "[" * 10_000, '{"device": 3}', "[]"])
def test_what_lies_beside_a_log_may_be_anything(text: str, quick: Path) -> None:
    script = quick / SCRIPT
    script.write_text(script.read_text() + f"\nopen('environment.json', 'w').write({text!r})")
    assert device_of(check(quick)).what == "it ran on cpu, says its log"


def test_a_case_on_a_device_that_does_not_exist_but_works(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulated one: the scaffold trains on it as on a vendor's, and its run says so."""
    write_package(tmp_path / "site", "npu")
    places = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    command = ["zoo", "check", str(made), "--device", "npu", "--index", "file:///", "--json"]
    assert run(command) == 0, capsys.readouterr()
    told = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in told["findings"] if one["check"] == "case small: device"] == [
        "it ran on npu, says its log"
    ]


def test_a_dataset_is_found_inside_or_below_the_root(quick: Path, tmp_path: Path) -> None:
    model = quick / "model.yaml"
    model.write_text(model.read_text().replace('dataset_path: ""', "dataset_path: images/train"))
    assert "dataset_path = images/train is not there" in reasons(check(quick))
    (tmp_path / "datasets" / "images").mkdir(parents=True)
    (tmp_path / "datasets" / "images" / "train.idx").write_text("")
    assert check(quick, RunOptions(dataset_root=tmp_path / "datasets", limits=QUICK.limits)).passed
    (quick / "images" / "train").mkdir(parents=True)
    assert check(quick).passed


@pytest.mark.parametrize("prefix", ["DLLL ", "TCAPPDLL "])
def test_logs_of_other_loggers_are_read(prefix: str, quick: Path) -> None:
    """Also one whose data is a string that holds a Python dict; code in such a string is no record, and is not run."""
    data = "{'train.loss': '1.5', 'train.ips': '9.0', 'val.perplexity': '2.0'}"
    crafted = "{'train.loss': __import__('os').environ.setdefault('CRAFTED', '1')}"
    lines = [
        prefix + json.dumps({"type": "LOG", "step": [0, 1], "data": data, "timestamp": "1.0"}),
        prefix + json.dumps({"type": "LOG", "step": [0, 2], "data": crafted}),
        prefix + json.dumps({"type": "LOG", "step": [0, 3], "data": data.replace("1.5", "1.25")}),
    ]
    (quick / SCRIPT).write_text(f"open('dlloger_example.json', 'w').write({chr(10).join(lines)!r})")
    report = check(quick)
    assert report.passed, reasons(report)
    assert report.cases["small"].last_loss == 1.25 and "CRAFTED" not in os.environ
    (quick / SCRIPT).write_text(f"print({chr(10).join(lines)!r})")
    assert check(quick).passed


def test_a_model_file_for_several_contributions(quick: Path, tmp_path: Path) -> None:
    [case] = yaml.safe_load((quick / "model.yaml").read_text())
    case["desc"] = {"run_dir": "contribution/run_scripts", "run_file": "run_small.py"}
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "model.yaml"
    path.write_text(yaml.safe_dump([case]))
    plan = CheckPlan(path, root=tmp_path, run=QUICK, index="file:///")
    report = check_contribution(plan)
    assert report.passed, reasons(report)
    assert report.subject == "contribution" and "small" in report.cases


def test_the_command(quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, text = tmp_path / "report.xml", tmp_path / "report.md"
    limits = ["--memory-limit", "1", "--disk-limit", "0.1", "--time-limit", "600", "--index", "file:///"]
    command = ["zoo", "check", str(quick), *limits, "--junit", str(xml), "--markdown", str(text)]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    (quick / SCRIPT).write_text("raise SystemExit('no <device> & no | hope \\x1b[31m')")
    assert run(command) == 7
    said = capsys.readouterr()
    assert "FAIL case small" in said.out and "exit status 1" in said.err and "\x1b" not in said.out
    suite = ElementTree.parse(xml).getroot()[0]  # noqa: S314 - ours
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "0")
    [failure] = [test for test in suite if test.find("failure") is not None]
    assert failure.get("name") == "case small"
    assert "| case small | ❌ failed | exit status 1 |" in text.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "flags", [["--steps", "0"], ["--memory-limit", "0"], ["--static", "--device", "cpu"], ["--junit", "no/where.xml"]]
)
def test_flags_that_cannot_be(flags: list[str], quick: Path) -> None:
    assert run(["zoo", "check", str(quick), *flags]) == 2


def test_nothing_that_was_not_checked_is_said_to_pass() -> None:
    report = Report("x", (Finding("requirements", "NOT CHECKED", "nobody answered"),))
    assert "NOT CHECKED: nobody answered" in page(report) and "1 NOT CHECKED" in page(report)
    assert '<skipped message="NOT CHECKED: nobody answered"' in junit(report)
    assert "⚠️ NOT CHECKED | nobody answered" in markdown(report)


def test_a_report_says_what_a_contribution_says_and_does_nothing_else() -> None:
    bad = Finding("case x", "failed", "@everybody [here](http://x) <b>|\x00", fix="```\n</details>")
    text = markdown(Report("x", (bad,)))
    assert "@everybody" not in text and "](http" not in text and "````" in text
    assert ElementTree.fromstring(junit(Report("x", (bad,)))) is not None  # noqa: S314 - ours
