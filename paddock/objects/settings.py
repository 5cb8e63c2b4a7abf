"""How a store that speaks like S3 is reached, and as whom: from the environment and from the files that all such
programs read. Nothing of it is kept anywhere.
"""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from urllib.parse import urlsplit

from paddock.errors import ConfigError, bad_value
from paddock.files import user_path
from paddock.versions import redacted

KEY, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
GIVEN_BY_THE_MACHINE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""By one of these a cluster tells its jobs where their credentials are."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "S3_ENDPOINT")
"""The last is ModelArts'."""
HOW = f"set {KEY} and {SECRET}, or write them into ~/.aws/credentials"


def s3_settings() -> dict[str, str]:
    """Endpoint, region and credentials, as far as somebody has said them."""
    found = _from_files()
    environment = os.environ
    if environment.get(KEY) or environment.get(SECRET):
        if not (environment.get(KEY) and environment.get(SECRET)):
            missing = SECRET if environment.get(KEY) else KEY
            raise ConfigError(f"{missing} is not set", why="the other half of the credentials is", fix=HOW)
        found |= {"access_key_id": environment[KEY], "secret_access_key": environment[SECRET]}
        found.pop("session_token", None)
        if environment.get(TOKEN):
            found["session_token"] = environment[TOKEN]
    elif any(environment.get(name) for name in GIVEN_BY_THE_MACHINE):
        for name in ("access_key_id", "secret_access_key", "session_token"):
            found.pop(name, None)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = next((environment[name] for name in ENDPOINTS if environment.get(name)), None)
    if endpoint is not None:
        found["endpoint"] = endpoint if "://" in endpoint else f"https://{endpoint}"
    _check_endpoint(found.get("endpoint"))
    found["region"] = region or found.get("region", "us-east-1")
    return found


def _check_endpoint(endpoint: str | None) -> None:
    if endpoint is None:
        return
    try:
        place = urlsplit(endpoint)
        holds = place.scheme in ("http", "https") and place.hostname and (place.port or 1) and "@" not in place.netloc
    except ValueError:
        holds = False
    if not holds:
        shown = redacted([endpoint])[0]
        raise bad_value(
            "AWS_ENDPOINT_URL", shown, "it names no machine", "write it as https://HOST or http://HOST:PORT"
        )


def _from_files() -> dict[str, str]:
    """What ~/.aws/credentials and ~/.aws/config say of the profile in use."""
    profile = os.environ.get("AWS_PROFILE") or "default"
    credentials = user_path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")
    config = user_path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config")
    section = profile if profile == "default" else f"profile {profile}"
    said = _section(config, section) | _section(credentials, profile)
    if not said and os.environ.get("AWS_PROFILE"):
        raise ConfigError(
            f"AWS_PROFILE = {profile}: there is no such profile", why=f"neither in {credentials} nor in {config}"
        )
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    return {ours: said[theirs] for theirs, ours in names.items() if said.get(theirs)}


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):  # whose words may repeat a line with a secret
        raise ConfigError(f"{file} cannot be read", why="it is no file of sections and name = value lines") from None
    return dict(parser[name]) if parser.has_section(name) else {}
