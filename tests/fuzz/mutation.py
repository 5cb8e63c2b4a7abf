"""Damage, drawn from a generator: to bytes, to lines, to what a JSON or YAML text says, to a set of files.

Every function takes a `random.Random` and nothing else that could differ, so that an input is known by its number.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

Files = dict[str, bytes]
"""An input: the content of every file, by its name in a folder."""
Mutator = Callable[[Random, bytes], bytes]
"""Damages one file."""

LONGEST = 1 << 16
"""Bytes to which an input may grow: what is large in a file must be so in its numbers."""

MOST_VALUES = 20_000

WHOLE = (0, 1, -1, 2, 7, 100, 127, 128, 255, 256, 32767, 65535, 65536, 10**6, 10**9, 3 * 10**8)
POWERS = tuple(sign * (1 << bits) + more for bits in (31, 32, 53, 63, 64) for sign in (1, -1) for more in (-1, 0, 1))
NUMBERS: tuple[Any, ...] = (*WHOLE, *POWERS, 10**30, 0.0, -0.0, 0.5, 1e-320, 1e300, math.inf, -math.inf, math.nan)
WORDS = (
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "null",
    "true",
    "nan",
    "\x00",
    "\n",
    "\t",
    "\r\n",
    "\x1b[31m",
    "\\",
    '"',
    "'",
    "%s%n",
    "{}",
    "..",
    "../..",
    "/",
    "/etc/passwd",
    "~",
    "a" * 300,
    "a/" * 200,
    "é",
    "中国",
    "\u2028",
    "\ufeff",
    "\u202e",
    "🙂",
    "\ud800",
    "\udc80",
    "[MASK]",
    "__proto__",
    "__class__",
    "[UNK]",
    "<unk>",
    "<extra_id_0>",
)
"""Texts that programs trip over. Halves of surrogates are spelt with an escape where they come into a file."""


def damage_bytes(rng: Random, data: bytes) -> bytes:
    """One blow to a file of any kind."""
    return rng.choice(_BLOWS)(rng, data)[: max(LONGEST, len(data))]


def _flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_byte(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] = rng.choice((0, 1, 9, 10, 32, 34, 44, 47, 58, 91, 123, 127, 128, 255))
    return bytes(changed)


def _truncate(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _extend(rng: Random, data: bytes) -> bytes:
    return data + rng.choice((b"\0", b"\n", b"\xff", data[: rng.randrange(1, 65)])) * rng.randrange(1, 17)


def _remove(rng: Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + data[begin + rng.choice((1, 1, 2, 4, 8, 64, 512)) :]


def _insert(rng: Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + rng.randbytes(rng.choice((1, 1, 2, 4, 8, 64))) + data[begin:]


def _move(rng: Random, data: bytes) -> bytes:
    """Copy a run of bytes over others of the same file."""
    source, target, count = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1), rng.choice((1, 4, 8, 32, 512))
    part = data[source : source + count]
    return data[:target] + part + data[target + (len(part) if rng.random() < 0.7 else 0) :]


def _set_number(rng: Random, data: bytes) -> bytes:
    """Write a number, an extreme one or one about the file's length, over some bytes: they may be a length."""
    width, order = rng.choice((1, 2, 4, 4, 8, 8)), rng.choice("<<<>")
    kind = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
    limit = 1 << (8 * width)
    near = [len(data) + more for more in (-8, -1, 0, 1, 8)]
    value = rng.choice((0, 1, 2, limit - 1, limit // 2, limit // 2 - 1, rng.randrange(limit), *near)) % limit
    last = max(0, len(data) - width)
    begin = rng.randint(0, min(last, 64)) if rng.random() < 0.5 else rng.randint(0, last)
    return data[:begin] + struct.pack(order + kind, value) + data[begin + width :]


_BLOWS: tuple[Mutator, ...] = (
    _flip,
    _flip,
    _set_byte,
    _truncate,
    _extend,
    _remove,
    _insert,
    _move,
    _set_number,
    _set_number,
)


def damage_text(rng: Random, data: bytes) -> bytes:
    """One blow to a file of lines: whole lines come, go and change places, and odd characters come in."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    match rng.randrange(8):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, lines[rng.randrange(len(lines))])
        case 2:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case 3:
            lines[place] = _truncate(rng, lines[place])
        case 4:
            lines[place] = b"".join([lines[place]] * rng.choice((2, 3, 50)))
        case 5:
            lines[place] = odd_text(rng).encode("utf-8", "surrogatepass")
        case 6:
            return data.replace(*rng.choice(((b"\n", b"\r\n"), (b"\n", b""), (b"\t", b" "), (b" ", b"\t"))))[:LONGEST]
        case 7:
            at, word = rng.randrange(len(lines[place]) + 1), odd_text(rng).encode("utf-8", "surrogatepass")
            lines[place] = lines[place][:at] + word + lines[place][at:]
    return b"\n".join(lines)[:LONGEST]


def odd_text(rng: Random) -> str:
    """A text that somebody could have meant, or not."""
    return rng.choice(WORDS) if rng.random() < 0.8 else "".join(map(chr, rng.choices(range(1, 0x2FFF), k=5)))


class Raw(str):
    """Text that goes into a JSON or YAML file as it is."""


_RAW_JSON = (
    *(Raw("[" * depth) for depth in (50, 1500)),
    *(Raw("[" * depth + "]" * depth) for depth in (50, 1500)),
    *(Raw('{"a":' * depth + "1" + "}" * depth) for depth in (50, 1500)),
    Raw("1" * 5000),
    Raw("-" + "9" * 400),
    Raw("1e400"),
    Raw("1" * 400 + ".5"),
    Raw("01"),
    Raw("+1"),
    Raw("NaN"),
    Raw("-Infinity"),
    Raw(""),
    Raw("undefined"),
    Raw('"\\ud800"'),
    Raw('"\\u0000"'),
    Raw('{"a": 1, "a": 2}'),
    Raw("[1, 2,]"),
)
_RAW_YAML = (
    *_RAW_JSON,
    Raw("!!int ''"),
    Raw("!!float x"),
    Raw("!!bool 7"),
    Raw("!!binary x"),
    Raw("!!timestamp 1"),
    Raw("!!set {a, b}"),
    Raw("!!omap [a: 1]"),
    Raw("!!pairs [a: 1]"),
    Raw("!!python/object/apply:os.getpid []"),
    Raw("!x y"),
    Raw("2024-99-99"),
    Raw("2024-01-01"),
    Raw("2024-01-01 25:61:61"),
    Raw("0x" + "f" * 300),
    Raw("0b2"),
    Raw("1:61:61"),
    Raw("190:20:30.15"),
    Raw("{[1]: 2}"),
    Raw("{{a: 1}: 2}"),
    Raw("{? [1, 2] : 3}"),
    Raw("{1: 2, null: 3, 1.5: 4, true: 5}"),
    Raw("&a [*a]"),
    Raw("{<<: {a: 1}}"),
    Raw("{<<: [1]}"),
    Raw("*nowhere"),
    Raw("[&a x, *a, *a]"),
    Raw(
        "["
        + "&a [x,x,x,x,x,x,x,x,x], "
        + "".join(f"&{b} [{','.join(['*' + a] * 9)}], " for a, b in zip("abcdefgh", "bcdefghi", strict=True))
        + "*i]"
    ),
    Raw("."),
    Raw(".inf"),
    Raw("-.INF"),
    Raw(".nan"),
    Raw("~"),
    Raw(
        "=",
    ),
    Raw("1_000"),
    Raw("1__0"),
    Raw("0o17"),
    Raw("|\n  x"),
    Raw("'"),
    Raw("\t"),
    Raw("@"),
    Raw("%YAML 9.9"),
)


def damage_values(rng: Random, value: Any, words: Sequence[Any] = (), raw: Sequence[Raw] = _RAW_JSON) -> Any:
    """A copy of plain values with one change; `words` are further values that mean something to the reader."""
    places = _places(value)
    path = rng.choice(places)
    found = _at(value, path)
    match rng.randrange(10):
        case 0 | 1 | 2:
            return _replaced(value, path, _odd_value(rng, found, words, raw))
        case 3 if path:
            return _without(value, path)
        case 4 if path and isinstance(path[-1], str):
            return _replaced(_without(value, path), (*path[:-1], _odd_key(rng, words)), found)
        case 5:
            return _replaced(value, path, _at(value, rng.choice(places)))
        case 6 if isinstance(found, list | tuple):
            return _replaced(value, path, [*found, *(found[-1:] or [0])] * rng.choice((1, 2, 40)))
        case 6 if isinstance(found, dict):
            return _replaced(value, (*path, _odd_key(rng, words)), _odd_value(rng, found, words, raw))
        case 7:
            return _replaced(value, path, rng.choice(([found], {"a": found}, {"": found}, [found] * 3)))
        case 8 if isinstance(found, int | float) and not isinstance(found, bool):
            return _replaced(
                value, path, rng.choice((found + 1, found - 1, -found, found * 2, found * 1000, str(found)))
            )
        case 8 if isinstance(found, str):
            return _replaced(value, path, _odd_spelling(rng, found))
        case 9 if isinstance(found, str | list) and len(found) > 1:
            return _replaced(value, path, found[: rng.randrange(len(found))])
        case _:
            return _replaced(value, path, _odd_value(rng, found, words, raw))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value, the whole among them."""
    found = [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, one in inside:
        found += _places(one, (*path, key))
        if len(found) > 2000:
            break
    return found


def _at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: Sequence[Any], new: Any) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    inside = copy.get(path[0]) if isinstance(copy, dict) else copy[path[0]]
    copy[path[0]] = _replaced(inside, path[1:], new)
    return copy


def _without(value: Any, path: Sequence[Any]) -> Any:
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = _without(copy[path[0]], path[1:])
    return copy


def _odd_value(rng: Random, found: Any, words: Sequence[Any], raw: Sequence[Raw]) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice(WORDS),
        lambda: rng.choice((None, True, False, [], {}, [None], {"": None})),
        lambda: rng.choice(raw),
    ]
    if words:
        kinds += [lambda: rng.choice(words)] * 2
    if isinstance(found, int | float):  # most checks look at the range of the right type
        kinds += [lambda: rng.choice(NUMBERS)] * 3
    if isinstance(found, str):
        kinds += [lambda: odd_text(rng)]
    return rng.choice(kinds)()


def _odd_key(rng: Random, words: Sequence[Any]) -> str:
    return str(rng.choice([*words, *WORDS[:-1]])) if words and rng.random() < 0.7 else rng.choice(WORDS)


def _odd_spelling(rng: Random, text: str) -> str:
    place = rng.randrange(len(text) + 1)
    return rng.choice((text.upper(), text + " ", text[:place] + odd_text(rng) + text[place:], text * 2, text[::-1]))


def to_json(value: Any) -> bytes:
    """JSON, but with raw parts as they are; ValueError for what is too large, as aliases of YAML can be."""
    raw: list[str] = []
    left = MOST_VALUES

    def kept(one: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("too many values")
        if isinstance(one, Raw):
            raw.append(one)
            return f"@raw{len(raw) - 1}@"
        if isinstance(one, dict):
            return {str(key): kept(inside) for key, inside in one.items()}
        return [kept(inside) for inside in one] if isinstance(one, list | tuple) else one

    text = json.dumps(kept(value), ensure_ascii=True, default=str)
    for number, part in enumerate(raw):
        text = text.replace(f'"@raw{number}@"', part, 1)
    return text.encode("utf-8", "surrogatepass")[:LONGEST]


def json_mutator(words: Sequence[Any] = ()) -> Mutator:
    """Changes what a JSON file says; a file that is no JSON any more is hit as bytes."""

    def mutate(rng: Random, data: bytes) -> bytes:
        kind = rng.randrange(10)
        if kind == 0:
            return damage_bytes(rng, data)
        try:
            text = to_json(damage_values(rng, json.loads(data), words))
        except (ValueError, RecursionError):
            return damage_bytes(rng, data)
        return _twice(rng, text) if kind == 1 else text

    return mutate


def lines_mutator(words: Sequence[Any] = ()) -> Mutator:
    """Changes what one line of a file of JSON lines says, or the lines."""
    one = json_mutator(words)

    def mutate(rng: Random, data: bytes) -> bytes:
        kind = rng.randrange(10)
        if kind < 2:
            return damage_bytes(rng, data)
        if kind < 4:
            return damage_text(rng, data)
        lines = data.split(b"\n")
        full = [number for number, line in enumerate(lines) if line.strip()]
        if not full:
            return damage_text(rng, data)
        place = rng.choice(full)
        lines[place] = one(rng, lines[place])
        return b"\n".join(lines)[:LONGEST]

    return mutate


def yaml_mutator(words: Sequence[Any] = ()) -> Mutator:
    """Changes what a YAML file says. What is written is flow style: JSON is YAML, too."""
    import yaml

    def mutate(rng: Random, data: bytes) -> bytes:
        kind = rng.randrange(10)
        if kind == 0:
            return damage_bytes(rng, data)
        if kind < 3:
            return damage_text(rng, data)
        try:
            return to_json(damage_values(rng, _yaml_values(data), words, _RAW_YAML))
        except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError):
            return damage_text(rng, data)

    return mutate


_parsed: dict[bytes, Any] = {}


def _yaml_values(data: bytes) -> Any:
    """Parsed once for every seed: the parser takes a millisecond."""
    import yaml

    if data not in _parsed:
        if len(_parsed) > 256:
            _parsed.clear()
        _parsed[data] = yaml.safe_load(data.decode())
    return _parsed[data]


def _twice(rng: Random, text: bytes) -> bytes:
    """A key that stands there twice: what JSON objects in memory cannot hold."""
    places = [at for at in range(len(text)) if text.startswith(b'": ', at)]
    if not places:
        return text
    end = rng.choice(places)
    begin = text.rfind(b'"', 0, end)
    return text[:begin] + text[begin : end + 3] + rng.choice((b"1", b"null", b"[]", b'"x"')) + b", " + text[begin:]


def mutate_files(rng: Random, seeds: Sequence[Files], mutators: Mapping[str, Mutator]) -> tuple[int, Files]:
    """A seed, by its number, and what became of it: one to four blows, most of them to the same file.

    `mutators` say how files are hit, by the end of their names; others are hit as bytes.
    """
    number = rng.randrange(len(seeds))
    files = dict(seeds[number])
    name = rng.choice(list(files))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if len(files) > 1 and rng.random() < 0.2:
            name = rng.choice(list(files))
        if len(files) > 1 and rng.random() < 0.01:
            del files[name]
            name = rng.choice(list(files))
        elif rng.random() < 0.02:  # from another input, or another file
            other = rng.choice(seeds)
            cut = rng.randrange(len(files[name]) + 1)
            files[name] = files[name][:cut] + rng.choice(list(other.values()))[cut:]
        else:
            files[name] = mutator_of(name, mutators)(rng, files[name])
    return number, files


def mutator_of(name: str, mutators: Mapping[str, Mutator]) -> Mutator:
    """How a file of this name is hit."""
    return next((mutator for end, mutator in mutators.items() if name.endswith(end)), damage_bytes)
