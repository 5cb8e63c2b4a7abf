"""The tokenizer that a corpus remembers: the one that it was made with, in the folder `PREFIX.tokenizer` beside it.

Token ids mean nothing without it. A corpus that somebody else made has no such folder, and says nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from paddock.data.tokenizers.engine import BEGIN_AND_END
from paddock.data.tokenizers.interface import Tokenizer
from paddock.data.tokenizers.load import load_tokenizer_folder
from paddock.errors import DataError
from paddock.files import disk_errors, temporary_folder

SUFFIX = ".tokenizer"


def tokenizer_folder(prefix: str | Path) -> Path:
    """Where a corpus keeps its tokenizer, if it does."""
    return Path(f"{prefix}{SUFFIX}")


def remember_tokenizer(tokenizer: Tokenizer, prefix: str | Path) -> None:
    """Keep a corpus's tokenizer beside it, in place of another that was there."""
    folder = tokenizer_folder(prefix)
    with temporary_folder(folder) as partial, disk_errors(folder):
        tokenizer.save(partial)
        if folder.is_dir():
            shutil.rmtree(folder)
        os.rename(partial, folder)


def remembered_tokenizer(prefix: str | Path) -> Tokenizer | None:
    """The tokenizer that a corpus was made with, if it says so."""
    folder = tokenizer_folder(prefix)
    if not os.path.lexists(folder):
        return None
    found = load_tokenizer_folder(folder)
    if found is None:
        raise DataError(
            f"there is no tokenizer in {folder}",
            why=f"it should be the one that {prefix} was made with",
            fix="put its files there, or remove the folder",
        )
    return found


def common_tokenizer(prefixes: Iterable[str | Path]) -> tuple[str | Path, Tokenizer] | None:
    """The tokenizer of all corpora that remember one, and the first that does; an error, if two were made with
    different ones."""
    first: tuple[str | Path, Tokenizer] | None = None
    for prefix in prefixes:
        tokenizer = remembered_tokenizer(prefix)
        if tokenizer is None:
            continue
        first = first or (prefix, tokenizer)
        difference = tell_apart(first[1], tokenizer)
        if difference is not None:
            raise DataError(
                f"{prefix} was made with another tokenizer than {first[0]}",
                why=f"in {tokenizer_folder(first[0])} and {tokenizer_folder(prefix)} {difference}",
                fix="preprocess the text of one of them with the tokenizer of the other",
            )
    return first


def check_tokenizer(tokenizer: Tokenizer | None, prefixes: Iterable[str | Path]) -> None:
    """An error, if corpora were made with different tokenizers, or with another than this."""
    found = common_tokenizer(prefixes)
    if tokenizer is None or found is None:
        return
    prefix, remembered = found
    difference = tell_apart(tokenizer, remembered)
    if difference is not None:
        raise DataError(
            f"{prefix} was made with another tokenizer than the recipe's",
            why=f"in the recipe's and in {tokenizer_folder(prefix)} {difference}",
            fix="leave the recipe's out (tokenizer.kind none), which takes the corpus's; or preprocess the text with "
            "the recipe's, which for weights that are trained already is theirs",
        )


def tell_apart(one: Tokenizer, other: Tokenizer) -> str | None:
    """How the tokens differ that two tokenizers number; None if they do not. Special tokens may be added to either."""
    hidden = _special_ids(one) | _special_ids(other)
    ours, theirs = (
        {id: tokenizer.token_at(id) for id in range(tokenizer.vocab_size) if id not in hidden}
        for tokenizer in (one, other)
    )
    if ours == theirs:
        return None
    if len(ours) != len(theirs):
        return f"there are {len(ours):,} and {len(theirs):,} tokens besides special ones"
    number = min(number for number in ours if ours[number] != theirs.get(number))
    return f"token {number} is {ours[number]!r} and {theirs.get(number, '')!r}"


def _special_ids(tokenizer: Tokenizer) -> set[int]:
    names = {*tokenizer.special.values(), *BEGIN_AND_END}
    return {id for name in names if (id := tokenizer.id_of(name)) is not None} | set(tokenizer.sentinel_ids)
