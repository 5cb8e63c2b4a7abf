"""Text as its tokens arrive. A token may end in the middle of a character: that part waits for the rest."""

from __future__ import annotations

from collections.abc import Callable

_REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are no character, or not yet
_MAX_PENDING = 3  # an unfinished character has at most three bytes
_MAX_SEGMENT = 16  # tokens; only bytes that never become a character make a segment this long


class TextStream:
    """Feed it tokens; it returns the text that is certain, and in the end what is left.

    Only a window of the last tokens is decoded again: the last piece of complete text, and what came after.
    (That piece stays because some decoders treat a first token differently.)
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._complete = 0
        """Tokens at the window's start whose text is complete."""
        self._shown = 0
        """Characters of the window's text that were returned already."""

    def push(self, token: int) -> str:
        """The text that this token completes: often a word, sometimes nothing yet."""
        self._window.append(token)
        text = self._decode(self._window)
        pending = len(text) - len(text.rstrip(_REPLACEMENT))
        if len(self._window) - self._complete > _MAX_PENDING:
            pending = min(pending, _MAX_PENDING)  # the marks before these will not become a character
        end = len(text) - pending
        new = text[self._shown : end]
        self._shown = max(self._shown, end)
        waiting = len(text) - self._shown
        if new and not pending:
            self._forget(self._complete, waiting)
            self._complete = len(self._window)
        elif len(self._window) - self._complete > _MAX_SEGMENT:
            # Tokens without text of their own hold no part of a character.
            self._window = [token for token in self._window if self._decode([token])]
            self._forget(max(0, len(self._window) - _MAX_PENDING - 1), waiting)
            self._complete = 0
        return new

    def finish(self) -> str:
        """What is left: an unfinished character, as the decoder shows it."""
        text = self._decode(self._window)[self._shown :] if self._window else ""
        self._window, self._complete, self._shown = [], 0, 0
        return text

    def _forget(self, tokens: int, waiting: int) -> None:
        """Drop the window's first tokens; so many characters at its end still wait to be shown."""
        del self._window[:tokens]
        self._shown = len(self._decode(self._window)) - waiting
