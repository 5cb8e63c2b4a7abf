"""Continuing text with a trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import Tokenizer
from paddock.devices import prepare, select
from paddock.errors import ConfigError
from paddock.inference.generate import generate
from paddock.inference.sampling import SamplingOptions
from paddock.inference.text_stream import TextStream
from paddock.inference.trained import need_tokenizer, open_trained


@dataclass(frozen=True)
class Continuation:
    """A prompt and what the model made of it."""

    prompt: str
    text: str
    tokens: int


def continue_text(
    source: str,
    prompts: list[str],
    options: SamplingOptions,
    device: str,
    show: Callable[[str], object] | None = None,
) -> list[Continuation]:
    """Continue every prompt. With `show` (and one sequence) the text is passed on as it comes."""
    if not prompts:
        raise ConfigError("there is no prompt", fix='give --prompt "some text", or --prompt-file FILE')
    for prompt in prompts:
        check_text("--prompt", prompt)
    options.check()
    adapter = select(device)
    prepare(adapter)
    trained = open_trained(source, adapter.torch_device(0))
    tokenizer = need_tokenizer(trained)
    if not trained.model.writes_text:
        raise ConfigError(f"{source} does not write text", fix=f"paddock predict {source} … uses it for what it does")
    ids = [_encode(tokenizer, prompt) for prompt in prompts]
    options = replace(options, stop_token=tokenizer.end_of_text_id)
    streams = show is not None and len(prompts) * options.num_return_sequences == 1
    on_token: Callable[[int, int], None] | None = None
    text = TextStream(tokenizer.decode)
    if streams and show is not None:
        show(prompts[0])

        def on_token(sequence: int, token: int) -> None:
            show(text.push(token))

    results = generate(trained.model, ids, options, on_token)
    if streams and show is not None:
        show(text.finish() + "\n")
    copies = options.num_return_sequences
    return [
        Continuation(prompts[index // copies], tokenizer.decode(tokens), len(tokens))
        for index, tokens in enumerate(results)
    ]


def _encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    ids = tokenizer.encode(prompt)
    if ids or tokenizer.end_of_text_id is None:
        return ids
    return [tokenizer.end_of_text_id]  # nothing said: a document begins
