"""Writing text with a trained model: continuing a prompt, or answering what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import Tokenizer
from paddock.devices import prepare, select
from paddock.errors import ConfigError, bad_value
from paddock.inference.generate import generate
from paddock.inference.options import GenerationOptions
from paddock.inference.text_stream import StoppingText, WholeText
from paddock.inference.trained import need_tokenizer, open_trained


@dataclass(frozen=True)
class Continuation:
    """A prompt and what the model made of it."""

    prompt: str
    text: str
    tokens: int
    continues: bool
    """Whether the text goes on where the prompt ends, rather than answering it."""


def continue_text(
    source: str,
    prompts: list[str],
    options: GenerationOptions,
    device: str,
    show: Callable[[str], object] | None = None,
    stops: Sequence[str] = (),
) -> list[Continuation]:
    """Continue every prompt, or answer it where the model reads what it is given. With `show` (and one sequence) the
    text is passed on as it comes. A text ends before the first of the `stops` that comes."""
    if not prompts:
        raise ConfigError("there is no prompt", fix='give --prompt "some text", or --prompt-file FILE')
    for prompt in prompts:
        check_text("--prompt", prompt)
    options.check()
    if "" in stops:
        raise bad_value("--stop", '""', "every text begins with nothing, and would end there", "give some text")
    adapter = select(device)
    prepare(adapter)
    trained = open_trained(source, adapter.torch_device(0))
    tokenizer = need_tokenizer(trained)
    if trained.model.writes is None:
        raise ConfigError(f"{source} does not write text", fix=f"paddock predict {source} … uses it for what it does")
    continues = trained.model.writes == "tokens"
    ids = [_encode(tokenizer, prompt, continues) for prompt in prompts]
    options = replace(options, stop_token=tokenizer.end_of_text_id)
    copies = options.num_return_sequences
    texts = [_text(tokenizer, stops, continues) for _ in range(len(prompts) * copies)]
    live = show if len(texts) == 1 else None
    if live is not None and continues:
        live(prompts[0])

    def on_token(sequence: int, token: int) -> bool:
        new = texts[sequence].push(token)
        if live is not None and new:
            live(new)
        return texts[sequence].stopped

    products = adapter.choose_products("auto", trained.model.config.num_parameters())
    with adapter.using_products(products):
        results = generate(trained.model, ids, options, on_token)
    for text in texts:
        rest = text.finish()
        if live is not None:
            live(rest + "\n")
    return [
        Continuation(prompts[index // copies], texts[index].text, len(tokens), continues)
        for index, tokens in enumerate(results)
    ]


def _text(tokenizer: Tokenizer, stops: Sequence[str], continues: bool) -> StoppingText | WholeText:
    """What becomes of the tokens of a sequence; where gaps are filled in, each piece is behind the gap's name."""
    return StoppingText(tokenizer.decode, stops) if continues else WholeText(tokenizer.decode_named, stops)


def _encode(tokenizer: Tokenizer, prompt: str, continues: bool) -> list[int]:
    """A prompt's tokens: to be continued, or, with its end, to be read."""
    ids, end = tokenizer.encode(prompt), tokenizer.end_of_text_id
    if end is None:
        return ids
    if not continues:
        return [*ids, end]
    return ids or [end]  # nothing said: a document begins
