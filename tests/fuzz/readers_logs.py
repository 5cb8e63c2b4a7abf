"""Readers of logs: records in every spelling, tables, and two runs of which one or both are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from engine import Reader
from mutation import Files, damage_bytes, damage_text, json_mutator, odd_text, to_json, yaml_mutator

from paddock.alignment.comparison.logged import read_run
from paddock.alignment.comparison.report import loss_plot, report_page
from paddock.alignment.comparison.runs import Settings, compare_runs
from paddock.config.load import load_recipe, to_yaml
from paddock.reporting.details import look_at
from paddock.reporting.figures import View
from paddock.reporting.listing import cells_of, describe_run
from paddock.reporting.page import report_page as report_page_of
from paddock.reporting.report import read_report, report_values
from paddock.telemetry.dllogger import JSONStreamBackend, Logger, Verbosity
from paddock.telemetry.drawing.svg import draw
from paddock.telemetry.logs import LogFile
from paddock.telemetry.records import encode_record, plain

WORDS = ("LOG", "METADATA", "INFO", "PARAMETER", "train.loss", "val.loss", "rank", "step", "data", "metric", "attempt")
LITERALS = (
    "{'train.loss': '3.5'}",
    "{'train.loss': 3.5, 'x': [1, {2: (3,)}]}",
    "{'a': __import__('os')._exit(0)}",
    "{'a': 'x' * 10 ** 9}",
    "{" * 300,
    "-" * 30_000 + "1",
    "{'a': " + "9" * 5000 + "}",
    "{1: 2, None: 3}",
    "{'train.loss': 'tensor(3.5, device=...)'}",
    "{'\\d': '\\ud800'}",
)


def theirs(step: int, loss: float) -> bytes:
    data = str({"rank": "0", "train.loss": str(loss), "train.lr": "0.001"})
    record = {"timestamp": "1.5", "elapsedtime": "0.5", "type": "LOG", "step": [0, step], "data": data}
    return b"TCAPPDLL " + json.dumps(record).encode() + b"\n"


def ours(step: int, loss: float) -> bytes:
    return encode_record(
        {"timestamp": 1.5, "type": "LOG", "step": [0, step], "data": {"train.loss": loss, "train.grad_norm": 1.0}}
    )


def log_seeds() -> list[Files]:
    described = encode_record({"type": "METADATA", "metric": "val.accuracy", "metadata": {"STAGE": "VAL"}})
    final = encode_record({"type": "LOG", "step": [1], "data": {"val.accuracy": 0.5, "val.loss": 2.0}})
    asked = b'DLLL {"type": "LOG", "step": "PARAMETER", "data": {"seed": 7, "lr": "0.001", "api_key": "x"}}\n'
    begins = b'{"type": "METADATA", "metric": "attempt", "metadata": {"number": 2, "after_step": 2}}\n'
    steps = range(1, 6)
    plain_lines = described + b"".join(ours(step, 4 - step / 10) for step in steps)
    return [
        {"a.json": plain_lines + begins + ours(3, 3.7) + final},
        {"a.json": b"epoch 1\n" + b"".join(theirs(step, 4 - step / 10) for step in steps)},
        {"a.json": asked + b"".join(b"DLLL " + ours(step, 4 - step / 10) for step in steps) + b"DLLL " + final},
        {"a.csv": b"step,train.loss,val.loss\n" + b"".join(b"%d,%f,\n" % (step, 4 - step / 10) for step in steps)},
        {"a.csv": b"\xef\xbb\xbfWall time;Step;Value\n" + b"".join(b"1.5;%d;%d\n" % (step, step) for step in steps)},
    ]


def read_log(folder: Path) -> object:
    (path,) = folder.iterdir()
    log = LogFile(path)
    records = list(log)
    assert all(len(remark) < 10_000 for remark in log.remarks)
    return len(records), repr([record.get("data") for record in records])


def pair_seeds() -> list[Files]:
    singles = log_seeds()
    return [
        {"a.json": next(iter(a.values())), "b.json": next(iter(b.values()))} for a in singles[:3] for b in singles[:3]
    ]


def read_pair(folder: Path) -> object:
    """Two logs are compared and shown, whatever they are."""
    runs = [read_run(str(folder / name)) for name in ("a.json", "b.json")]
    found = compare_runs(runs[0], runs[1], Settings(allow_differences=True))
    page = report_page(found)
    draw(loss_plot(found), is_alone=True)
    assert "<script" not in page.lower()
    return json.dumps(plain(found.to_dict()), allow_nan=False)


def run_seeds() -> list[Files]:
    """What a run keeps of itself besides its weights, and a log that it is compared with."""
    environment = {
        "command": ["paddock"],
        "processes": {"nproc_per_node": 2, "nnodes": 1},
        "torch": "2.13.0",
        "device": "cpu",
        "total_steps": 5,
        "data_position": {"train.seed": 1234, "training data": "71 documents"},
    }
    config = to_yaml(load_recipe("gpt2/tiny")).encode()
    log = b"".join(ours(step, 4 - step / 10) for step in range(1, 6))
    text = json.dumps(environment).encode()
    attempts = {"run/attempts/1/config.yaml": config, "run/attempts/2/config.yaml": config.replace(b"1234", b"7")}
    return [
        {"run/config.yaml": config, "run/environment.json": text, "run/metrics.jsonl": log, "b.json": log} | attempts
    ]


def read_run_directory(folder: Path) -> object:
    found = compare_runs(read_run(str(folder / "run")), read_run(str(folder / "b.json")), Settings())
    assert "<script" not in report_page(found).lower()
    return json.dumps(plain(found.to_dict()), allow_nan=False)


def kept_seeds() -> list[Files]:
    """A whole run directory, which went on once."""
    (seed,) = run_seeds()
    files = {name: data for name, data in seed.items() if name.startswith("run/")}
    begins = encode_record({"type": "METADATA", "metric": "attempt", "metadata": {"number": 2, "after_step": 3}})
    timed = {"train.loss": 3.0, "train.tokens_per_second": 2048.0, "train.step_time": 0.5, "val.loss": 3.1}
    went_on = [
        encode_record({"elapsedtime": step / 2, "type": "LOG", "step": [0, step], "data": timed}) for step in (4, 5)
    ]
    ended = encode_record({"type": "LOG", "step": [], "data": {"summary.ips": 3.0}})
    about = {"step": 5, "best": {"loss": 3.1}, "best_step": 5, "best_of": {"measure": "loss"}}
    lock = {"pid": 1, "host": "here", "verb": "train", "since": "now"}
    return [
        files
        | {
            "run/metrics.jsonl": files["run/metrics.jsonl"] + begins + b"".join(went_on) + ended,
            "run/attempts/1/environment.json": files["run/environment.json"],
            "run/checkpoints/step-00000005/checkpoint.json": json.dumps(about).encode(),
            "run/.lock": json.dumps(lock).encode(),
        }
    ]


def look_at_run(folder: Path) -> object:
    """A run is listed, shown and reported on, however its files are: the list never refuses."""
    name = str(folder / "run")
    entry = describe_run(name)
    assert cells_of(entry) and json.dumps(plain(look_at(name).to_dict()), allow_nan=False)
    report = read_report([name], [], View())
    page = report_page_of(report).lower()
    assert page.count("<script") == page.count("</script") == 1
    return json.dumps(plain(report_values(report)), allow_nan=False)


def damage_log(rng: Random, data: bytes) -> bytes:
    """A line of a log: what its record says, in whatever spelling, or the line itself."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    prefix, brace, record = lines[place].partition(b"{")
    match rng.randrange(8):
        case 0:
            return damage_bytes(rng, data)
        case 1 | 2:
            return damage_text(rng, data)
        case 3 if brace:
            try:
                values = json.loads(brace + record)
                values["data"] = rng.choice(LITERALS) if rng.random() < 0.8 else odd_text(rng)
                lines[place] = b"TCAPPDLL " + to_json(values)
            except (ValueError, TypeError, RecursionError):
                return damage_text(rng, data)
        case 4:
            lines[place] = rng.choice((b"", b"DLLL ", b"TCAPPDLL ", b"INFO ")) + brace + record
        case _ if brace:
            lines[place] = prefix + json_mutator(WORDS)(rng, brace + record)
        case _:
            return damage_text(rng, data)
    return b"\n".join(lines)


def written_seeds() -> list[Files]:
    values = [{"train.loss": 3.5, "rank": "0", "name": "x", "list": [1, 2.5], "none": None}, {"val.loss": 2}]
    return [{"values.json": json.dumps(values).encode()}]


def read_written(folder: Path) -> object:
    """Whatever a script logs is a log that can be read again, of as many records."""
    try:
        values = json.loads((folder / "values.json").read_bytes())
    except (ValueError, RecursionError):
        return None
    logger = Logger([JSONStreamBackend(Verbosity.VERBOSE, folder / "log.json")])
    rows = [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, dict)]
    for number, row in enumerate(rows):
        logger.log(step=row.get("step", (0, number)), data=row)
    logger.info(values)
    log = LogFile(folder / "log.json")
    records = list(log)
    assert len(records) == len(rows) + 1 and not log.remarks
    return len(records)


READERS = [
    Reader("log", log_seeds, read_log, {".json": damage_log, ".csv": damage_text}),
    Reader("two_logs", pair_seeds, read_pair, {".json": damage_log}),
    Reader(
        "run_directory",
        run_seeds,
        read_run_directory,
        {
            ".yaml": yaml_mutator(WORDS),
            ".jsonl": damage_log,
            "environment.json": json_mutator(WORDS),
            "b.json": damage_log,
        },
        share=0.25,
    ),
    Reader(
        "kept_run",
        kept_seeds,
        look_at_run,
        {
            ".yaml": yaml_mutator(WORDS),
            ".jsonl": damage_log,
            ".json": json_mutator(WORDS),
            ".lock": json_mutator(WORDS),
        },
        share=0.25,
    ),
    Reader("logged", written_seeds, read_written, {".json": json_mutator(WORDS)}, fresh=True, share=0.5),
]
