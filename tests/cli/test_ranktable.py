"""`paddock ranktable`: tables made, joined and checked as on two servers, and a dry run with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run


def test_from_two_servers_to_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for server in (0, 1):
        (tmp_path / "hccn.conf").write_text("".join(f"address_{n}=192.1.{server}.{n + 6}\n" for n in range(4)))
        make = ["--devices", "[0,4]", "--server-id", f"203.0.113.{server + 1}", "--hccn-conf", "hccn.conf"]
        assert run(["ranktable", "make", *make, "--output", f"server{server}.json"]) == 0
    assert run(["ranktable", "merge", "server0.json", "server1.json", "--output", "table.json"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "table.json: 8 ranks on 2 servers"
    table = json.loads(Path("table.json").read_text())
    assert table["server_list"][1]["device"][3] == {"device_id": "3", "device_ip": "192.1.1.9", "rank_id": "7"}
    assert run(["ranktable", "check", "table.json", "--rank-size", "8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"sound": True, "problems": [], "ranks": {"203.0.113.1": [0, 1, 2, 3], "203.0.113.2": [4, 5, 6, 7]}}
    assert run(["train", "gpt2/tiny", "--rank-table", "table.json", "--batch.micro", "1", "--dry-run"]) == 0
    assert "data 8" in capsys.readouterr().out, "to count the ranks, any machine will do"


def test_what_is_wrong_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ranktable", "make", "--devices", "0,2", "--server-id", "a"]) == 0
    table = json.loads(capsys.readouterr().out)
    table["server_list"][0]["device"][1]["rank_id"] = "0"
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table | {"server_count": "2"}))
    assert run(["ranktable", "check", str(path), "--rank-size", "4"]) == 4
    said = capsys.readouterr()
    assert said.out.startswith(f"FAIL {path}: 2 ranks on 1 servers\n")
    for problem in ("a server is missing", "rank 0 is given twice", "2 ranks, and 4 are wanted"):
        assert problem in said.out
    assert "(and 2 more)" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["make", "--devices", "[0,8]", "--server-id", "a", "--hccn-conf", "nowhere"], 4, "cannot read nowhere"),
        (["make", "--devices", "[0,2]", "--server-id", "a", "--device-ips", "1.2.3.4"], 2, "its own address"),
        (["merge"], 2, "needs "),
        (["merge", "nowhere"], 4, "there is no rank table nowhere"),
        ([], 2, "needs to know what to do"),
    ],
)
def test_refused(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ranktable", *arguments]) == code
    assert message in capsys.readouterr().err


def test_devices_that_the_driver_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hccn.conf").write_text("address_0=192.1.0.6\n")
    make = ["make", "--devices", "[0,2]", "--server-id", "a", "--hccn-conf", str(tmp_path / "hccn.conf")]
    assert run(["ranktable", *make]) == 4
    assert "has no address of device 1" in capsys.readouterr().err
