"""What a decoder begins with: a token that its tokenizer must have."""

from __future__ import annotations

from paddock.data.tokenizers.load import Tokenizer
from paddock.errors import bad_value
from paddock.models.config import ModelConfig


def check_start(tokenizer: Tokenizer, model: ModelConfig) -> None:
    """The decoder's first token must be one of the tokenizer's: in Paddock's models it may be any, T5's is its pad."""
    start = model.start_token()
    if start is not None and start < tokenizer.vocab_size and tokenizer.token_at(start):
        return
    usual = tokenizer.pad_id
    raise bad_value(
        "model.decoder_start",
        start,
        f"a decoder begins with a token, and the tokenizer has none of this id among its {tokenizer.vocab_size}",
        f"set --model.decoder-start {usual} ({tokenizer.special['pad']})",
    )
