"""Text into sentences, by rules: no model, nothing to download, one pass over the text.

- A full-width stop (。！？｡ and ……) ends a sentence wherever it stands. Quotes and brackets that close right behind
  any stop belong to the sentence.
- Another stop (. ! ? … and those of Arabic and Hindi) ends one if white space follows, and then something that can
  begin a sentence: no lower-case letter, comma or further stop. Before a Chinese or Japanese character ! and ? need
  no space.
- A period ends none behind an abbreviation, an initial or the number of a list item; behind what may also come last
  ("U.S.", "Inc.") the next word decides.
- An empty line ends a sentence; so does a line break, unless a lower-case letter follows: that line was wrapped.
"""

from __future__ import annotations

import re

_FULL_STOPS = "。！？｡"
_CLOSING = r"\"'”’»›)\]}」』）】》〉〕］｝〟＂＇"
_OPENING = "\"'“‘«‹([{「『（【《〈〔［｛〝"
_CANNOT_BEGIN = frozenset(".!?…,;:)]}%，；：、）】》」』”’")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f“‘「『《〈【（]")

# One class first, which is searched for quickly; then all that belongs to it, so that nothing is looked at twice.
_STOPS = rf".!?…{_FULL_STOPS}．؟۔।॥"
_BREAKS = r"\n\r\x0b\x0c\x85\u2028\u2029"
_CANDIDATE = re.compile(rf"[{_STOPS}{_BREAKS}](?:(?<=[{_STOPS}])[{_STOPS}{_CLOSING}]*+)?+(\s*+)")

_NEVER_LAST = frozenset(
    "mr mrs ms messrs mme mlle dr prof rev hon gov sen rep pres gen adm maj col capt cmdr lt sgt cpl st mt "
    "fig figs eq eqs vol ch ref refs v vs cf viz approx ca e.g i.e eg ie incl".split()
)
_BEFORE_NUMBERS = frozenset("no nos p pp c art jan feb mar apr jun jul aug sep sept oct nov dec".split())
_MAY_BE_LAST = frozenset("inc ltd co corp llc bros jr sr esq etc al dept est ave blvd rd univ ft sec ph.d".split())
_STARTERS = frozenset(
    "The This That These Those There Then They It Its He His She Her We Our You I In On At As A An And But For From "
    "If When While Where Who What Why How However After Before Although Though Since Because So Yet Both Each Some "
    "Most Many All No Not One Two Under With Without By To Also Another During Despite According Meanwhile".split()
)
_LONGEST = 12
assert all(len(word) < _LONGEST for word in _NEVER_LAST | _BEFORE_NUMBERS | _MAY_BE_LAST)
_INITIALS = re.compile(r"(?:[^\W\d_]\.-?)+[^\W\d_]")
_NEXT_WORD = re.compile(rf"\w{{1,{_LONGEST}}}+(?![.\w])")


def split_sentences(text: str, keep_newlines: bool = False) -> list[str]:
    """The sentences of a text, in order. White space between them is dropped, and nothing else is; with
    `keep_newlines` every sentence keeps the white space behind it: joined, they are the text."""
    pieces = []
    start = 0
    for candidate in _CANDIDATE.finditer(text, len(text) - len(text.lstrip())):
        if candidate.end() < len(text) and _ends_sentence(text, start, candidate):
            pieces.append(text[start : candidate.end()])
            start = candidate.end()
    if start < len(text):
        pieces.append(text[start:])
    return pieces if keep_newlines else [piece for piece in map(str.strip, pieces) if piece]


def _ends_sentence(text: str, start: int, candidate: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with this candidate. Something follows it."""
    space = candidate[1]
    stop = text[candidate.start() : candidate.start(1)]
    following = text[candidate.end()]
    if stop.isspace():
        return not following.islower() or candidate[0].count("\n") > 1
    if not stop.isascii() and _is_full_stop(stop, following):
        return True
    if not space:
        return ("!" in stop or "?" in stop) and _EAST_ASIAN.match(following) is not None
    if space.count("\n") > 1:
        return True
    wrapped = "\n" in space
    if following.islower() or (following in _CANNOT_BEGIN and not wrapped):
        return False
    if following in _OPENING and text[candidate.end() + 1 : candidate.end() + 2].islower():
        return False
    return stop != "." or not _is_abbreviation(text, start, candidate, wrapped)


def _is_full_stop(stop: str, following: str) -> bool:
    if any(character in stop for character in _FULL_STOPS) or "……" in stop:
        return True
    return stop == "．" and not following.isdigit()


def _is_abbreviation(text: str, start: int, candidate: re.Match[str], wrapped: bool) -> bool:
    """Whether the period belongs to the word before it and ends nothing."""
    period = candidate.start()
    before = text[max(start, period - _LONGEST) : period]
    if not before or before[-1].isspace():
        return False
    word = before.split()[-1].lstrip(_OPENING)
    plain = word.lower()
    if plain in _NEVER_LAST:
        return True
    if plain in _BEFORE_NUMBERS:
        return text[candidate.end()].isdigit()
    if plain in _MAY_BE_LAST or _INITIALS.fullmatch(word) or (len(word) == 1 and word.isupper()):
        next_word = _NEXT_WORD.match(text, candidate.end())
        return not wrapped and (next_word is None or next_word.group() not in _STARTERS)
    return word.isdigit() and len(before) == period - start and before.strip() == word
