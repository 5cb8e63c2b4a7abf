"""Sentences: where they end, where they do not, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.language.sentences import split_sentences

TEXT = st.text(
    st.sampled_from("aAIé1 .!?…,;\"')(“”\n\r\t\u3000\u2028。！？｡．「」国の٪؟।") | st.characters()
) | st.lists(
    st.sampled_from(
        ["Dr. ", "e.g. ", "U.S. ", "The ", "it ", "。”", "……", "3.14", ". ", "!\n", "\n\n", "中国", "No. ", "5"]
    )
).map("".join)


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "We stayed!", "Why?", "Nobody knew."],
        ["Dr. Smith met Mrs. Jones vs. the rest, e.g. Prof. Li.", "They talked."],
        ["J. R. R. Tolkien and J.-P. Sartre never met.", "É. Zola died in 1902.", "Then came others."],
        ["He lived in the U.S. Army base.", "She left the U.S.", "The rest stayed."],
        ["It begins at 9 p.m. Eastern time.", "It ends at 11 p.m.", "However, nobody leaves."],
        ["Apple Inc. Chairman Cook spoke.", "So did Foo et al. (2019).", "He owns Apple Inc.", "It pays."],
        ["Pi is 3.14 and e is 2.71.", "Version 1.2.3 is out.", "It cost 3.5 % more."],
        ["See Fig. 3, No. 5 and p. 7.", "No.", "I will not."],
        ["Well... maybe.", "Or...", "Not… yet.", "Hm …", "Yes."],
        ["Wait . . . what?", "He left . . .", "She did not."],
        [
            '"Stop!" he said.',
            '"Why?" she asked.',
            "(Nobody knew.)",
            "[He left.]",
            "He said 'no.'",
            "“Fine.”",
            "Yes?!",
            "No.",
        ],
        ["It ended. (or did it?)", "Nobody knew.", "(He did.)", "He left."],
        ["1. Wash the rice.", "2. Boil it.", "It was 1999.", "He ate."],
        ["In U.S. v. Nixon, c. 1974, he lost.", "Then?"],
        ["Visit www.example.com/a.b?c=d.", "It works!yes or no.", "Really."],
        ["Он пришёл.", "Она ушла."],
        ["ماذا؟", "نعم۔", "हाँ।", "नहीं।"],
    ],
)
def test_with_spaces(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天天气不错。", "你好吗？", "很好！", "走吧"],
        ["他说：“你好。”", "她问：「谁？」", "（没有人。）", "真的？！", "『是。』）", "好"],
        ["我……", "不知道。", "完"],
        ["你好!", "你是谁?", "我是GPT-2.0。", "是"],
        ["行こう。", "「うん。」", "そうか？", "はい｡", "終"],
        ["円周率は３．１４である．", "次の文．", "終わり"],
    ],
)
def test_without_spaces(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


def test_lines() -> None:
    text = (
        "A heading\nA line that was\nwrapped in the middle. It\nended.\n\nanother paragraph\r\nNext\r\n"
        "Dr.\nWho\nat Apple Inc.\nNew"
    )
    assert split_sentences(text) == [
        "A heading",
        "A line that was\nwrapped in the middle.",
        "It\nended.",
        "another paragraph",
        "Next",
        "Dr.\nWho\nat Apple Inc.",
        "New",
    ]


def test_white_space_is_kept_on_demand() -> None:
    text = "\n One.  Two!\n\nthree\n"
    assert split_sentences(text) == ["One.", "Two!", "three"]
    assert split_sentences(text, keep_newlines=True) == ["\n One.  ", "Two!\n\n", "three\n"]
    for blank in ("", " \n "):
        assert split_sentences(blank) == []
        assert split_sentences(blank, keep_newlines=True) == ([blank] if blank else [])


@given(TEXT)
def test_nothing_is_lost(text: str) -> None:
    kept = split_sentences(text, keep_newlines=True)
    assert "".join(kept) == text
    assert not any(piece[:1].isspace() for piece in kept[1:])
    assert split_sentences(text) == [piece.strip() for piece in kept if piece.strip()]


@pytest.mark.parametrize(
    "unit", [".", ". ", " ", "\n", ".\n", "。”", '."', "A. ", "Dr. ", "a.b", "x", "中", "\t\n", "( ."]
)
def test_hostile_text_takes_time_in_proportion(unit: str) -> None:
    """In time that grows with the square of the length this would not end before the test's timeout."""
    text = unit * (600_000 // len(unit)) + " End. It ends."
    assert split_sentences(text)[-1] == "It ends."
