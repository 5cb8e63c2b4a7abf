"""The data that a user names in Python as two arguments, as fields of the data section of a task."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]
