"""Rank tables: written, joined, and refused for each kind of damage. The example is that of MindFormers' guide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import ConfigError, DataError
from paddock.launch.placement.rank_table import (
    checked_rank_table,
    device_addresses,
    make_rank_table,
    merge_rank_tables,
    parse_range,
    read_rank_table,
)

Table = dict[str, Any]


def example() -> Table:
    """Four servers of eight devices."""
    hosts = {140: (27, 6), 141: (27, 8), 142: (27, 10), 143: (27, 12)}
    servers = []
    for place, (host, (net, last)) in enumerate(hosts.items()):
        devices = [
            {
                "device_id": str(device),
                "device_ip": f"192.{device % 4 + 1}.{net}.{last + device // 4}",
                "rank_id": str(8 * place + device),
            }
            for device in range(8)
        ]
        servers.append({"server_id": f"10.155.111.{host}", "device": devices, "host_nic_ip": "reserve"})
    return {"version": "1.0", "server_count": "4", "server_list": servers, "status": "completed"}


def written(table: Table, path: Path) -> Path:
    path.write_text(json.dumps(table))
    return path


def test_the_table_of_the_guide(tmp_path: Path) -> None:
    table = checked_rank_table(written(example(), tmp_path / "table.json"))
    assert table.ranks == list(range(32))
    assert table.model_dump() == example()


def test_tables_of_servers_make_the_table_of_the_guide(tmp_path: Path) -> None:
    """What the tool of each server writes (ranks from 0), joined: renumbered in order."""
    whole, parts = example(), []
    for server in whole["server_list"]:
        own = {**server, "device": [{**device, "rank_id": device["device_id"]} for device in server["device"]]}
        path = written({**whole, "server_count": "1", "server_list": [own]}, tmp_path / f"{server['server_id']}.json")
        parts.append((path.name, read_rank_table(path)))
    assert merge_rank_tables(parts).model_dump() == whole
    backwards = merge_rank_tables(parts[::-1])
    assert backwards.ranks == list(range(32))
    assert backwards.server_list[0].server_id == "10.155.111.143"


def test_a_table_of_this_server(tmp_path: Path) -> None:
    hccn = tmp_path / "hccn.conf"
    hccn.write_text("address_0=192.168.100.101\nnetmask_0=255.255.255.0\naddress_5=192.168.100.106\n")
    assert device_addresses(hccn) == {0: "192.168.100.101", 5: "192.168.100.106"}
    table = make_rank_table("10.0.0.1", [4, 5], ["192.168.100.105", "192.168.100.106"])
    assert table.ranks == [0, 1]
    assert [device.device_id for device in table.server_list[0].device] == ["4", "5"]
    assert checked_rank_table(written(table.model_dump(), tmp_path / "table.json")) == table
    with pytest.raises(ConfigError, match="its own address"):
        make_rank_table("10.0.0.1", [0, 1], ["192.168.100.105"])
    with pytest.raises(ConfigError, match="would not be"):
        make_rank_table("10.0.0.1", [0, 1], ["192.168.100.105"] * 2)
    with pytest.raises(DataError, match="cannot read"):
        device_addresses(tmp_path / "nowhere")


def first(table: Table) -> Table:
    return table["server_list"][0]  # type: ignore[no-any-return]


DAMAGE: dict[str, tuple[Callable[[Table], object], str]] = {
    "duplicate rank": (lambda table: first(table)["device"][1].update(rank_id="0"), "rank 0 is given twice"),
    "rank left out": (lambda table: first(table)["device"][0].update(rank_id="32"), "no rank 0"),
    "ranks out of order": (lambda table: table["server_list"].reverse(), "rank 24 is where 0 should be"),
    "duplicate device": (lambda table: first(table)["device"][1].update(device_id="0"), "has device 0 twice"),
    "duplicate address": (
        lambda table: first(table)["device"][1].update(device_ip="192.1.27.6"),
        "192.1.27.6 belongs to two devices",
    ),
    "no address": (lambda table: first(table)["device"][1].update(device_ip="192.1.27"), "is no address"),
    "missing server": (lambda table: table["server_list"].pop(), "a server is missing: server_count is 4, and 3"),
    "wrong count": (lambda table: table.update(server_count="3"), "server_count is 3, and 4 servers are listed"),
    "duplicate server": (
        lambda table: table["server_list"][1].update(server_id="10.155.111.140"),
        "server 10.155.111.140 is listed twice",
    ),
    "empty server": (lambda table: first(table).update(device=[]), "10.155.111.140 has no devices"),
    "no servers": (lambda table: table.update(server_list=[]), "a server is missing"),
    "another version": (lambda table: table.update(version="1.2"), "its version is '1.2'"),
    "not completed": (lambda table: table.update(status="initializing"), "its status is 'initializing'"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(kind: str, tmp_path: Path) -> None:
    table = example()
    damage, message = DAMAGE[kind]
    damage(table)
    with pytest.raises(DataError, match="cannot be used") as caught:
        checked_rank_table(written(table, tmp_path / "table.json"))
    assert message in caught.value.why, caught.value.why
    assert "merge" in caught.value.fix


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (lambda table: first(table)["device"][3].update(rank_id=3), "server_list.0.device.3.rank_id"),
        (lambda table: table.update(server_count=4), "server_count"),
        (lambda table: first(table)["device"][3].update(rank_id="three"), "server_list.0.device.3.rank_id"),
        (lambda table: first(table)["device"][3].pop("device_id"), "server_list.0.device.3.device_id"),
        (lambda table: table.pop("status"), "status"),
        (lambda table: table.update(server_list={}), "server_list"),
    ],
)
def test_another_form(damage: Callable[[Table], object], where: str, tmp_path: Path) -> None:
    table = example()
    damage(table)
    with pytest.raises(DataError, match="expected form") as caught:
        read_rank_table(written(table, tmp_path / "table.json"))
    assert caught.value.why.startswith(where)
    assert "every value is a text" in caught.value.fix


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "1.0"}', "null"])
def test_no_table_at_all(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(DataError):
        read_rank_table(path)
    with pytest.raises(DataError, match="there is no rank table"):
        read_rank_table(tmp_path / "nowhere.json")


def test_tables_that_do_not_join() -> None:
    one, two = make_rank_table("10.0.0.1", [0, 1]), make_rank_table("10.0.0.2", [0, 1])
    with pytest.raises(DataError, match="listed twice"):
        try:
            merge_rank_tables([("one", one), ("again", one)])
        except DataError as error:
            raise DataError(error.why) from None
    with pytest.raises(DataError, match="several versions") as caught:
        merge_rank_tables([("one", one), ("two", two.model_copy(update={"version": "1.2"}))])
    assert caught.value.why == "one is of 1.0, two is of 1.2"
    with pytest.raises(DataError, match="the rank table two cannot be joined"):
        merge_rank_tables([("one", one), ("two", two.model_copy(update={"server_count": "2"}))])


@pytest.mark.parametrize("text", ["[0,8]", "0,8", "[0, 8]"])
def test_ranges(text: str) -> None:
    assert parse_range("--device-range", text) == range(8)


@pytest.mark.parametrize("text", ["", "8", "[8,0]", "[0,0]", "[0-8]", "[-1,8]", "[a,b]"])
def test_no_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="--device-range"):
        parse_range("--device-range", text)
