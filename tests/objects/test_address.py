"""Addresses, and how a store is reached: what is meant by them, and what is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import ConfigError
from paddock.objects.address import Address, is_address
from paddock.objects.settings import s3_settings


def test_an_address_says_where_something_is() -> None:
    address = Address.parse("s3://bucket/folder/name/")
    assert (address.bucket, address.key, address.name) == ("bucket", "folder/name", "name")
    assert str(address / "file") == "s3://bucket/folder/name/file"
    assert str(Address.parse("file:///data/corpus")) == "file:///data/corpus"
    assert str(Address.parse("S3://bucket")) == "s3://bucket"


@pytest.mark.parametrize("text", ["folder/name", "/data", "C:/data", "0.7", "openai-community/gpt2", "", "s3:/bucket"])
def test_paths_are_no_addresses(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    "text, words",
    [
        ("http://host/file", "use one of s3://"),
        ("s3://", "names no bucket"),
        ("s3:///name", "names no bucket"),
        ("s3://bucket/a//name", "no empty names"),
        ("s3://bucket/../name", "no \\.\\."),
        ("s3://bucket/na\nme", "without them"),
        ("file://host/name", "another machine"),
        ("s3://me:geheim@bucket/name", "environment"),
        ("s3://me:ge/heim@bucket/name", "environment"),
        ("s3://bucket/name?X-Amz-Signature=geheim", "environment"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        Address.parse(text)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "model", "s3://bucket/exported"],
        ["generate", "model", "--prompt", "a", "--output", "s3://bucket/texts.jsonl"],
        ["evaluate", "gpt2/tiny", "--missed", "s3://bucket/missed.jsonl"],
        ["check", "config", "gpt2/tiny", "--data.cache", "s3://bucket/cache"],
        ["check", "config", "gpt2/tiny", "--log.file", "s3://bucket/log.txt"],
        ["check", "config", "gpt2/tiny", "--checkpoint.load", "gs://bucket/run"],
        ["check", "config", "gpt2/tiny", "--data.source", "indexed", "--data.path", "s3://me:geheim@bucket/corpus"],
    ],
)
def test_where_no_address_will_do_it_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    words = said.err + said.out
    assert "give a path" in words or "use one of" in words or "where a password would stay" in words
    assert not Path("s3:").exists()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY is not set"):
        s3_settings()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert s3_settings() == {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
    monkeypatch.setenv("S3_ENDPOINT", "obs.region.example")
    assert s3_settings()["endpoint"] == "https://obs.region.example"


def test_settings_come_from_the_usual_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no-credentials").write_text("[default]\naws_access_key_id = key\naws_secret_access_key = s%cret\n")
    (tmp_path / "no-config").write_text(
        "[default]\nregion = eu-north-1\n[profile other]\nendpoint_url = http://host:1\n"
    )
    assert s3_settings() == {"access_key_id": "key", "secret_access_key": "s%cret", "region": "eu-north-1"}
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert s3_settings() == {"endpoint": "http://host:1", "region": "us-east-1"}
    monkeypatch.setenv("AWS_PROFILE", "third")
    with pytest.raises(ConfigError, match="no such profile"):
        s3_settings()


def test_a_file_that_cannot_be_read_does_not_show_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "no-credentials").write_text("aws_secret_access_key geheim\n")
    with pytest.raises(ConfigError, match="cannot be read") as refused:
        s3_settings()
    assert "geheim" not in str(refused.value)
