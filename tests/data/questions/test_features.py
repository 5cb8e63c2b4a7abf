"""Questions as rows: against transformers' own windows, and places in the text against the text itself."""

from __future__ import annotations

import json
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.questions import features as module
from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.questions.features import QuestionFeatures, QuestionFile, build_arrays, load_features
from paddock.data.questions.squad import Question, QuestionSet
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import load_tokenizer
from paddock.errors import DataError
from paddock.tasks.answers import trimmed
from paddock.testing.samples.texts import word_tokenizer, write_vocabulary

with tempfile.TemporaryDirectory() as folder:
    UNCASED, CASED = (word_tokenizer(Path(folder), lower_case) for lower_case in (True, False))

SHARED = Path(__file__).parents[4] / "shared" / "data"
TRICKY = "Berlin berlin's é e\u0301 ü\u0308ß 中国北京 \t\n\r  \u200b\x00\x07 ﬁ ＡＢ İ ŉ 𝔸 👩‍👧 [SEP] ##s ...,,".split(
    " "
)
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=80),
    st.lists(st.sampled_from([*TRICKY, " ", "  ", "\u3000"]), min_size=2, max_size=20).map(" ".join),
)


def features(
    contexts: list[str],
    questions: list[Question],
    tokenizer: EngineTokenizer = UNCASED,
    **settings: Any,
) -> QuestionFeatures:
    data = QuestionAnsweringData(**{"sequence_length": 24, "question_length": 6, "stride": 4, **settings})
    return QuestionFeatures(build_arrays(QuestionSet(contexts, questions), tokenizer, data, "f.json"), tokenizer)


@given(context=TEXTS, question=TEXTS.filter(lambda text: text.strip() != ""), lower_case=st.booleans())
@example(context="word " * 40, question="who ?", lower_case=True)
def test_rows_are_those_of_transformers(context: str, question: str, lower_case: bool) -> None:
    from transformers import PreTrainedTokenizerFast

    ours = UNCASED if lower_case else CASED
    asked = ours.encode(question)
    if not asked or len(asked) > 6:
        return
    theirs = PreTrainedTokenizerFast(tokenizer_object=ours.engine, pad_token="[PAD]", cls_token="[CLS]")
    expected = theirs(
        [question],
        [context],
        truncation="only_second",
        max_length=24,
        stride=4,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    found = features([context], [Question("q", question, 0, ())], ours)
    assert len(found) == len(expected["input_ids"])
    for index in range(len(found)):
        tokens, token_types, answer = found.row(index)
        assert tokens.tolist() == expected["input_ids"][index]
        assert token_types.tolist() == expected["token_type_ids"][index]
        assert answer.tolist() == [0, 0]
        assert found.lengths[index] == len(tokens)
        begin = len(asked) + 2
        for place in range(begin, len(tokens) - 1):
            assert found.characters(index, place, place) == tuple(expected["offset_mapping"][index][place])


@given(data=st.data(), context=TEXTS, lower_case=st.booleans())
def test_an_answer_is_found_where_it_stands(data: st.DataObject, context: str, lower_case: bool) -> None:
    """Whatever the tokenizer drops or changes, an answer's tokens stand for its characters in the original text."""
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    tokenizer = UNCASED if lower_case else CASED
    places = tokenizer.encode_with_offsets([context])[0][1]
    inside = [(first, last) for first, last in places if first < end and last > start]
    question = Question("q", "who ?", 0, ((context[start:end], start),))
    if not inside:
        with pytest.raises(DataError, match="no token stands for its answer"):
            features([context], [question], tokenizer, sequence_length=200)
        return
    found = features([context], [question], tokenizer, sequence_length=200)
    (row,) = range(len(found))
    first, last = found.row(row)[2].tolist()
    assert found.characters(row, first, last) == (inside[0][0], inside[-1][1])
    # Between these places and the answer's own lie only the rest of a word and what the tokenizer drops.
    begin, stop = trimmed(context, *found.characters(row, first, last))
    assert begin < end and stop > start
    dropped = context[start:begin] + context[stop:end]
    assert not tokenizer.encode(dropped) or all(map(_invisible, dropped))


def _invisible(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Mn", "Cc", "Cf", "Co", "Cn", "Cs")


@pytest.mark.parametrize(
    "context, answer",
    [
        ("In  BERLIN\u00a0, the", "BERLIN"),
        ("in Cafe\u0301s", "Cafe\u0301s"),
        ("é\u0301\u200bBerlin\x07!", "Berlin"),
        ("中国的首都是北京。", "北京"),
        ("Größe und Berlin", "Größe"),
    ],
)
def test_answers_come_back_as_they_were_written(context: str, answer: str) -> None:
    found = features([context], [Question("q", "who ?", 0, ((answer, context.index(answer)),))])
    first, last = found.row(0)[2].tolist()
    assert context[slice(*trimmed(context, *found.characters(0, first, last)))] == answer
    assert (found.context(0), found.id(0), found.answers(0)) == (context, "q", [answer])


def test_a_long_context_is_seen_whole() -> None:
    context = " ".join(["berlin is big ."] * 6500)  # about 100,000 characters
    start = context.rindex("berlin")
    found = features([context], [Question("q", "where is it ?", 0, (("berlin", start),))])
    seen: list[int] = []
    for index in range(len(found)):
        tokens, token_types, _ = found.row(index)
        begin = int((token_types == 0).sum())
        shown = [found.characters(index, place, place) for place in range(begin, len(tokens) - 1)]
        if index:
            assert [first for first, _ in shown[:4]] == seen[-4:]  # the stride
        seen += [first for first, _ in shown if not seen or first > seen[-1]]
    assert seen == [first for first, _ in UNCASED.encode_with_offsets([context])[0][1]]
    answers = np.array([found.row(index)[2] for index in range(len(found))])
    assert (answers[:-1] == 0).all() and (answers[-1] > 0).all()
    assert found.rows_of.tolist() == [len(found)]


def test_a_long_question_is_cut() -> None:
    found = features(["berlin"], [Question("q", "who " * 50, 0, ())])
    tokens, token_types, _ = found.row(0)
    assert tokens[1:7].tolist() == [UNCASED.id_of("who")] * 6 and (token_types == 0).sum() == 8


def test_an_answer_that_two_windows_share() -> None:
    context = "a b c d e f g h i j k l m n o p q r s t u v w x y z"
    rows = features([context], [Question("q", "who ?", 0, (("q r", context.index("q r")),))])
    for index in range(len(rows)):
        first, last = rows.row(index)[2].tolist()
        if first:
            assert context[slice(*rows.characters(index, first, last))] == "q r"
        else:
            shown = context[slice(*rows.characters(index, 4, len(rows.row(index)[0]) - 2))]
            assert "q r" not in shown
    assert sum(rows.row(index)[2][0] > 0 for index in range(len(rows))) == 2


def test_marks_of_chinese_words_are_for_masking_only(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    config = TokenizerConfig(kind="wordpiece", vocab=str(write_vocabulary(tmp_path)), chinese_whole_words=True)
    marking = load_tokenizer(config)
    assert isinstance(marking, EngineTokenizer) and marking.encode("北京") != CASED.encode("北京")
    question = Question("q", "中国首都是哪里", 0, (("北京", 5),))
    rows, plain = (features(["中国首都是北京"], [question], tokenizer) for tokenizer in (marking, CASED))
    assert [part.tolist() for part in rows.row(0)] == [part.tolist() for part in plain.row(0)]


def test_a_context_without_a_token() -> None:
    found = features(["\x00\x07", "berlin"], [Question("a", "who ?", 0, ()), Question("b", "who ?", 1, ())])
    assert len(found) == 2 and found.lengths.tolist() == [5, 6]


def test_features_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(context: str) -> None:
        entry = {"id": "1", "question": "Where?", "answers": [{"text": "berlin", "answer_start": 0}]}
        content = {"data": [{"paragraphs": [{"context": context, "qas": [entry]}]}]}
        (tmp_path / "train.json").write_text(json.dumps(content))

    made = []
    original = build_arrays

    def counting(*arguments: Any) -> Any:
        made.append(arguments)
        return original(*arguments)

    def load(tokenizer: EngineTokenizer = UNCASED, **settings: Any) -> QuestionFeatures:
        data = QuestionAnsweringData(path=str(tmp_path), cache=str(tmp_path / "cache"), **settings)
        return load_features(QuestionFile.read(data, "train"), tokenizer, data)

    monkeypatch.setattr(module, "build_arrays", counting)
    write("berlin is big")
    first, again = load(), load()
    assert len(made) == 1
    assert [part.tolist() for part in first.row(0)] == [part.tolist() for part in again.row(0)]
    load(stride=100)
    load(CASED)
    write("berlin is large")
    assert load().context(0) == "berlin is large"
    assert len(made) == 4


def test_an_answer_without_tokens_can_be_left_out() -> None:
    questions = [Question("a", "who ?", 0, (("\x07", 6),)), Question("b", "who ?", 0, (("berlin", 0),))]
    with pytest.raises(DataError, match="question a: no token stands for its answer"):
        features(["berlin\x07"], questions)
    found = features(["berlin\x07"], questions, on_error="skip")
    assert (found.num_questions, found.skipped, found.id(0)) == (1, 1, "b")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the SQuAD dev set is not here")
def test_the_whole_dev_set(tmp_path: Path) -> None:
    data = QuestionAnsweringData(validation=str(SHARED / "squad" / "dev-v1.1.json"), cache=str(tmp_path))
    vocab = str(SHARED / "tokenizers" / "bert_base_uncased" / "vocab.txt")
    tokenizer = load_tokenizer(TokenizerConfig(kind="wordpiece", vocab=vocab, lower_case=True))
    assert isinstance(tokenizer, EngineTokenizer)
    found = load_features(QuestionFile.read(data, "validation"), tokenizer, data)
    assert found.num_questions == 10570 and found.skipped == 0
    found_at = {found.question_of(index): index for index in range(len(found)) if found.row(index)[2][0]}
    assert len(found_at) == 10570
    inexact = 0
    for question, index in found_at.items():
        context, answer = found.context(question), found.answers(question)[0]
        shown = context[slice(*found.characters(index, *found.row(index)[2].tolist()))]
        assert answer in shown
        inexact += shown != answer  # it begins or ends inside a word
    assert inexact < 40
