"""Streamed text: what comes out piece by piece is what decoding the whole gives, without half characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from paddock.inference.generation.text_stream import StoppingText, StopStrings, TextStream, WholeText

TEXT = "naïve café — 日本語のテキスト 🙂🧑‍🚀 plain again\n"


def decode_bytes(tokens: list[int]) -> str:
    """A vocabulary of single bytes: the hardest one."""
    return bytes(tokens).decode("utf-8", errors="replace")


def pieces(stream: TextStream, tokens: list[int]) -> list[str]:
    return [stream.push(token) for token in tokens] + [stream.finish()]


def test_characters_come_whole() -> None:
    out = pieces(TextStream(decode_bytes), list(TEXT.encode()))
    assert [piece for piece in out if piece] == list(TEXT)
    assert out[0] == "n" and out[2:4] == ["", "ï"], "each as soon as its last byte is there"


@given(st.text(), st.data())
def test_any_text_in_any_tokens(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)))))
    chunks = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    stream = TextStream(lambda tokens: b"".join(chunks[token] for token in tokens).decode(errors="replace"))
    out = pieces(stream, list(range(len(chunks))))
    assert "".join(out) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in out)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text(data: bytes) -> None:
    assert "".join(pieces(TextStream(decode_bytes), list(data))) == decode_bytes(list(data))


def test_an_unfinished_character_shows_at_the_end_only() -> None:
    out = pieces(TextStream(decode_bytes), list("a€".encode()[:-1]))
    assert out == ["a", "", "", "\ufffd"]


def test_a_stream_can_be_used_again() -> None:
    stream = TextStream(decode_bytes)
    assert stream.finish() == ""
    assert pieces(stream, list(b"ab")) == pieces(stream, list(b"ab")) == ["a", "b", ""]


def test_a_decoder_that_treats_the_first_token_differently() -> None:
    tokenizer = Tokenizer(models.WordLevel({"▁one": 0, "▁two": 1, "s": 2, "?": 3}, unk_token="?"))
    tokenizer.decoder = decoders.Metaspace()
    tokens = [0, 1, 2, 0, 0, 2]
    out = pieces(TextStream(tokenizer.decode), tokens)
    assert out == ["one", " two", "s", " one", " one", "s", ""]


def test_bytes_as_a_fallback() -> None:
    """There, a run of bytes that is no text as a whole decodes to one mark for each of its bytes."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁hi": 256}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<0x00>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokens = [256, *"€🙂é".encode(), 256, *"日本".encode()]
    assert tokenizer.decode(tokens) == " hi€🙂é hi日本"
    out = pieces(TextStream(tokenizer.decode), tokens)
    assert [piece for piece in out if piece] == [" hi", "€", "🙂", "é", " hi", "日", "本"]


def test_the_cost_does_not_grow_with_the_length() -> None:
    for data in (TEXT.encode() * 50, b"\x80\xff\xe2" * 1000, b"a" * 3000):
        longest = 0

        def decode(tokens: list[int]) -> str:
            nonlocal longest
            longest = max(longest, len(tokens))
            return decode_bytes(tokens)

        assert "".join(pieces(TextStream(decode), list(data))) == decode_bytes(list(data))
        assert longest <= 32


def test_tokens_without_text() -> None:
    """Special tokens that the decoder leaves out must not fill the window."""
    longest = 0

    def decode(tokens: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return decode_bytes([token for token in tokens if token < 256])

    none = [300] * 50
    first, second = "é".encode()
    tokens = [*b"ab", *none, first, *none, second, 300, *b"c"]
    assert "".join(pieces(TextStream(decode), tokens)) == "abéc"
    assert longest <= 32


# Where a text ends

SHORT = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


def cut(text: str, stops: list[str]) -> str:
    """Character by character: the plainest way to say what is meant."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


@given(SHORT, STOPS, st.data())
def test_stop_strings_in_any_pieces(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    stream = StopStrings(stops)
    out = [stream.push(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    out.append(stream.finish())
    assert "".join(out) == cut(text, stops)
    assert stream.found == any(stop in text for stop in stops)


@given(st.text("aé€🙂", max_size=10), st.lists(st.text("aé€🙂", min_size=1, max_size=3), max_size=2))
def test_streamed_text_is_the_whole_text(text: str, stops: list[str]) -> None:
    """Over tokens of single bytes, so that stop strings and characters begin and end anywhere within tokens."""
    tokens = list(text.encode())
    stream, whole = StoppingText(decode_bytes, stops), WholeText(decode_bytes, stops)
    seen = []
    for token in tokens:
        seen.append(stream.push(token))
        whole.push(token)
        if stream.stopped:
            assert whole.stopped
            break
    seen.append(stream.finish())
    whole.finish()
    assert "".join(seen) == stream.text == whole.text == cut(text, stops)


def test_what_may_be_the_beginning_of_a_stop_waits() -> None:
    stream = StopStrings(["END"])
    assert [stream.push(letter) for letter in "An ENd, END"] == ["A", "n", " ", "", "", "ENd", ",", " ", "", "", ""]
    assert stream.found and stream.finish() == "" and stream.push("more") == ""
