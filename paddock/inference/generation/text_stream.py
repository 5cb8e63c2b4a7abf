"""Text as its tokens arrive. A token may end in the middle of a character: that part waits for the rest. And a text
may end where certain words come: what may be their beginning waits, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class StopStrings:
    """Feed it text in any pieces; it returns what stands before the first of some strings that is complete, as soon as
    that is certain. However the text is cut into pieces, what comes out is the same."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""
        self.found = False
        """Whether one came: what follows is nobody's."""

    def push(self, text: str) -> str:
        """The text that is certain not to belong to one of the strings."""
        if self.found:
            return ""
        self._held += text
        places = [(place + len(string), place) for string in self._strings if (place := self._held.find(string)) >= 0]
        self.found = bool(places)
        certain = min(places)[1] if places else len(self._held) - self._begun()
        shown, self._held = self._held[:certain], "" if self.found else self._held[certain:]
        return shown

    def finish(self) -> str:
        """What was held back, for nothing."""
        shown, self._held = self._held, ""
        return shown

    def _begun(self) -> int:
        """How many characters at the end may be the beginning of one of the strings."""
        longest = min(len(self._held), max((len(string) for string in self._strings), default=1) - 1)
        ends = (self._held[-length:] for length in range(longest, 0, -1))
        return next((len(end) for end in ends if any(string.startswith(end) for string in self._strings)), 0)


class WholeText:
    """The text of one sequence, up to the first of some strings, by a decoder that must see all tokens at once. It is
    there at the end; whether one of the strings came is known at once."""

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str]) -> None:
        self._decode, self._stops, self._tokens = decode, tuple(stops), list[int]()
        self.text = ""

    @property
    def stopped(self) -> bool:
        return bool(self._stops) and self._cut().found

    def push(self, token: int) -> str:
        """Nothing yet."""
        self._tokens.append(token)
        return ""

    def finish(self) -> str:
        """All of it."""
        self._cut()
        return self.text

    def _cut(self) -> StopStrings:
        stops = StopStrings(self._stops)
        self.text = stops.push(self._decode(self._tokens))
        self.text += stops.finish()
        return stops


class StoppingText:
    """The text of one sequence as its tokens arrive, up to the first of some strings."""

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str]) -> None:
        self._stream, self._stops = TextStream(decode), StopStrings(stops)
        self.text = ""

    @property
    def stopped(self) -> bool:
        return self._stops.found

    def push(self, token: int) -> str:
        """The text that this token makes certain."""
        new = self._stops.push(self._stream.push(token))
        self.text += new
        return new

    def finish(self) -> str:
        """What is left when the last token has come."""
        new = self._stops.push(self._stream.finish())
        new += self._stops.finish()
        self.text += new
        return new
