"""`paddock convert SOURCE DESTINATION`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paddock.cli.arguments import parse


@dataclass(frozen=True)
class ConvertOptions:
    """Turn a checkpoint into a Hugging Face folder that transformers loads, or such a folder into a checkpoint.

    The tokenizer, the config and the names of classes go along. Missing, extra or misshapen weights are errors that
    list the names."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FROM")]
    """A run directory, a checkpoint, or a Hugging Face folder."""
    destination: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TO")]
    """What to write; it must not exist yet. A name that ends in .safetensors is one file with the names that are public
    (for a ResNet: torchvision's and timm's)."""
    to: Literal["huggingface", "paddock"] = "huggingface"
    """The form to write."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The number format of the weights in a Hugging Face folder."""


def main(arguments: list[str]) -> None:
    options = parse(ConvertOptions, "convert", arguments)
    from paddock.jobs.convert import convert

    convert(options.source, options.destination, options.to, options.dtype)
    print(options.destination)
