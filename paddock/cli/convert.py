"""`paddock convert SOURCE DESTINATION`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paddock.cli.arguments import parse
from paddock.errors import bad_value
from paddock.phases import phase


@dataclass(frozen=True)
class ConvertOptions:
    """Turn a checkpoint into a Hugging Face folder that transformers loads, or such a folder into a checkpoint.

        paddock convert runs/t5 t5-exported
        paddock convert mt5-base mt5-english --trim-vocab corpus.txt

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
    trim_vocab: tuple[str, ...] = ()
    """Keep only the tokens that these corpora use (text files, .jsonl, or the prefix of an indexed corpus), and the
    special ones: the embedding, the head and the tokenizer of a T5 or mT5 become smaller, and what the model says of
    the rest stays the same. The form may stay the same, too."""
    json_keys: tuple[str, ...] = ("text",)
    """--trim-vocab: the keys of .jsonl lines whose values are text."""
    vocab_multiple: int = 1
    """--trim-vocab: fill the vocabulary up to a multiple of this, as a layout or a device may like it: the rows behind
    the tokens repeat that of the padding."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    options = parse(ConvertOptions, "convert", arguments)
    if options.vocab_multiple != 1 and not options.trim_vocab:
        raise bad_value("--vocab-multiple", options.vocab_multiple, "nothing is trimmed", "add --trim-vocab CORPUS")
    with phase("converting", with_torch=True) as told:
        from paddock.jobs.convert import TrimVocabulary, convert

        trim = None
        if options.trim_vocab:
            trim = TrimVocabulary(options.trim_vocab, options.json_keys, options.vocab_multiple)
        said = convert(options.source, options.destination, options.to, options.dtype, trim, told.update)
    for line in said:
        print(line, file=sys.stderr)
    result = {"destination": str(options.destination), "form": options.to, "notes": said}
    print(json.dumps(result, ensure_ascii=False) if options.json else options.destination)
