"""What the recipes of each task must fulfil beyond their single sections: functions that return what holds, with the
numbers, or raise an error with the fix. No torch: a recipe is checked before anything is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.data.config import LENGTH_MULTIPLE, CorpusConfig, MaskedConfig, SpanConfig, TokensConfig
from paddock.errors import ConfigError, bad_value
from paddock.plugins import PROGRAM

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe
    from paddock.data.sequence_pairs.config import SequencePairsData
    from paddock.parallel.config import ParallelConfig
    from paddock.tasks.registry import Rules


def model_fits(recipe: Recipe) -> str:
    """What the recipe trains for against what the model is made for."""
    model, task = recipe.model, recipe.task
    if model.serves(task):
        return f"{model.family} for {task}"
    if task not in model.tasks():
        fix = f"take a recipe of another family, or one whose task is {model.task()}"
        raise bad_value("task", task, f"{model.family} is made for {model.task()}", fix)
    raise bad_value(
        "model.head",
        model.task(),
        f"the recipe's task is {task}",
        f"set --model.head {task}, or take a recipe whose task is {model.task()}",
    )


def sequence_fits(recipe: Recipe) -> str:
    """Samples against the positions that the model has."""
    length, context = recipe.data.sample_shape().source, recipe.model.longest_sequence()
    if context is None:
        return f"sequence {length}"
    if length > context:
        raise bad_value(
            "data.sequence_length",
            length,
            f"the model has only {context} positions",
            f"set --data.sequence-length {context} or less, or --model.context {length}",
        )
    return f"sequence {length} ≤ context {context}"


def check_source(recipe: Recipe) -> str:
    """Where a corpus comes from, against what turns it into tokens."""
    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, TokensConfig)
    texts = [source for source in ("text", "embedded") if source in data.sources()]
    if data.source in ("indexed", "text") and data.path is None:
        others = " or ".join(source for source in [*texts, "synthetic"] if source != data.source)
        raise ConfigError(
            f"data.path is not set, and data.source = {data.source} reads it",
            why="there is no corpus to train on",
            fix=f"set --data.path {'PREFIX' if data.source == 'indexed' else 'FILE'}, or take --data.source {others}",
        )
    if data.source in texts and tokenizer.kind == "none":
        raise bad_value(
            "tokenizer.kind",
            "none",
            f"data.source = {data.source} is text, and nothing turns it into tokens",
            f"set --tokenizer.kind {_text_tokenizers(data)}",
        )
    if data.source == "synthetic" and tokenizer.kind != "none":
        raise bad_value("tokenizer.kind", tokenizer.kind, "synthetic tokens stand for no text", "set it to none")
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


def _text_tokenizers(data: TokensConfig) -> str:
    """What turns text into the tokens that a task needs."""
    if isinstance(data, MaskedConfig):
        return "wordpiece with --tokenizer.vocab FILE, file, folder or trained"
    if isinstance(data, SpanConfig):
        return "sentencepiece with --tokenizer.model FILE, file, folder, or trained with --tokenizer.extra-ids 100"
    return "trained, gpt2 or file"


def check_corpus(recipe: Recipe) -> str:
    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, CorpusConfig)
    found = check_source(recipe)
    if data.source == "indexed" and tokenizer.kind == "trained":
        raise bad_value(
            "tokenizer.kind",
            "trained",
            f"data.source = {data.source} is already tokens, so there is no text to learn a tokenizer from",
            "set --tokenizer.kind gpt2, file or folder (for generating text), or none; a corpus that `paddock "
            "preprocess` made says itself which one",
        )
    if data.minds_document_ends and data.eod is None and tokenizer.kind == "none":
        raise ConfigError(
            "the token that ends a document is not known",
            why="data.reset_position_ids, reset_attention_mask and eod_mask_loss look for it",
            fix="set --data.eod ID, or a --tokenizer.kind",
        )
    vocab = recipe.model.vocabulary()
    if data.eod is not None and data.eod >= vocab:
        raise bad_value("data.eod", data.eod, f"the model's tokens are 0 to {vocab - 1}", f"set it below {vocab}")
    return found


def check_text_rows(recipe: Recipe) -> str:
    """Text needs a tokenizer, and layouts need rows of certain lengths."""
    from paddock.data.labels.config import LabelledTextData
    from paddock.data.questions.config import QuestionAnsweringData

    data, tokenizer, parallel = recipe.data, recipe.tokenizer, recipe.parallel
    assert isinstance(data, QuestionAnsweringData | LabelledTextData)
    if data.source != "synthetic" and not (data.train or data.validation or getattr(data, "path", None)):
        files = "--data.path FOLDER, or " if isinstance(data, QuestionAnsweringData) else ""
        raise ConfigError(
            f"data.source = {data.source} reads files, and none is named",
            why="there is nothing to train or to evaluate on",
            fix=f"set {files}--data.train FILE and --data.validation FILE, or take --data.source synthetic",
        )
    if tokenizer.kind in ("none", "sentencepiece"):
        raise bad_value(
            "tokenizer.kind",
            tokenizer.kind,
            f"data.source = {data.source} is text, and every token's place in it must be known",
            "set --tokenizer.kind wordpiece with --tokenizer.vocab FILE, or file, or trained",
        )
    check_lengths(data.padding, parallel)
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


def check_lengths(padding: str, parallel: ParallelConfig) -> None:
    """Rows that are filled up to the longest of a batch have lengths that not every layout takes."""
    if padding == "longest" and parallel.pipeline > 1:
        raise bad_value(
            "data.padding",
            "longest",
            f"the {parallel.pipeline} stages of a pipeline exchange rows of one length",
            "set --data.padding full",
        )
    if parallel.sequence and LENGTH_MULTIPLE % parallel.tensor:
        raise bad_value(
            "parallel.sequence",
            parallel.sequence,
            f"{parallel.tensor} tensor processes cannot share rows whose lengths are multiples of {LENGTH_MULTIPLE}",
            "set --parallel.sequence false, or --parallel.tensor 2, 4 or 8",
        )


def check_pairs(recipe: Recipe) -> str:
    """Pairs of texts need files and a tokenizer; a model that is cut over processes cannot write yet."""
    from paddock.data.sequence_pairs.config import SequencePairsData

    data, tokenizer, parallel = recipe.data, recipe.tokenizer, recipe.parallel
    assert isinstance(data, SequencePairsData)
    if data.source != "synthetic" and not (data.train or data.validation):
        files = "SOURCES TARGETS" if data.source == "text" else "FILE"
        raise ConfigError(
            f"data.source = {data.source} reads files, and none is named",
            why="there is nothing to train or to evaluate on",
            fix=f"set --data.train {files} and --data.validation {files}, or take --data.source synthetic",
        )
    if tokenizer.kind == "none":
        raise bad_value(
            "tokenizer.kind",
            "none",
            f"data.source = {data.source} is text, and nothing turns it into tokens",
            "set --tokenizer.kind sentencepiece with --tokenizer.model FILE, or another kind, or trained",
        )
    if recipe.model.start_token() is None:
        raise bad_value(
            "model.family",
            recipe.model.family,
            "it has no token that a decoder begins with",
            "take a model with an encoder and a decoder, such as t5, and set its decoder start token",
        )
    check_lengths(data.padding, parallel)
    check_writing(data, recipe.model.vocabulary(), parallel)
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


def check_writing(data: SequencePairsData, vocabulary: int, parallel: ParallelConfig) -> None:
    """What evaluations write: settings that cannot be, and layouts in which no process has the whole model."""
    if data.num_beams > vocabulary:
        raise bad_value(
            "data.num_beams",
            data.num_beams,
            f"the vocabulary has {vocabulary} tokens",
            f"set it to {vocabulary} or less",
        )
    cuts = {"tensor": parallel.tensor > 1, "pipeline": parallel.pipeline > 1, "shard": parallel.shard == "parameters"}
    cut = next((name for name, holds in cuts.items() if holds), None)
    if data.generate == "always" and cut is not None:
        raise bad_value(
            "data.generate",
            "always",
            f"with parallel.{cut} = {getattr(parallel, cut)} no process has the whole model, as it must in training",
            "set --data.generate after_training, and then run `paddock evaluate RUN`, which writes in any layout",
        )


def check_marked_corpus(recipe: Recipe, marks: str) -> str:
    """Changing the tokens of a corpus needs to know which of them are special."""
    data, tokenizer, found = recipe.data, recipe.tokenizer, check_source(recipe)
    if data.source == "indexed" and tokenizer.kind in ("none", "trained"):
        raise bad_value(
            "tokenizer.kind",
            tokenizer.kind,
            f"the corpus is already tokens, and only its tokenizer knows which of them are {marks}",
            "set --tokenizer.kind wordpiece, sentencepiece, file or folder, to the tokenizer that it was preprocessed "
            "with; a corpus that `paddock preprocess` made says itself which one",
        )
    return found


def check_masked_corpus(recipe: Recipe) -> str:
    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, MaskedConfig)
    found = check_marked_corpus(recipe, "[CLS], [SEP] and [MASK]")
    if data.whole_words and tokenizer.kind == "none":
        raise bad_value("data.whole_words", True, "random tokens are no words", "set --data.whole-words false")
    return found


def check_spans(recipe: Recipe) -> str:
    return check_marked_corpus(recipe, "<extra_id_0>, <extra_id_1>, …")


def check_images(recipe: Recipe) -> str:
    """Where the images are, and how many classes they can have."""
    from paddock.data.images.config import SHAPES, ImageData

    data, classes = recipe.data, recipe.model.num_classes()
    assert isinstance(data, ImageData)
    if data.is_read and data.path is None:
        raise ConfigError(
            f"data.path is not set, and data.source = {data.source} reads it",
            why="there are no images to train on",
            fix="set --data.path FOLDER, or take --data.source shapes or synthetic",
        )
    if data.source == "shapes" and classes != len(SHAPES):
        raise bad_value(
            "model.classes",
            classes,
            f"data.source = shapes has {len(SHAPES)} classes: {', '.join(SHAPES)}",
            f"set --model.classes {len(SHAPES)}",
        )
    if recipe.tokenizer.kind != "none":
        raise bad_value("tokenizer.kind", recipe.tokenizer.kind, "images have no tokens", "set it to none")
    return f"{data.describe()}, {data.image_size} × {data.image_size}, {classes} classes"


def check_own_data(recipe: Recipe) -> str:
    """Datasets of the user's own, and who reads them."""
    from paddock.data.own.config import OwnData

    data = recipe.data
    assert isinstance(data, OwnData)
    if data.train is None and data.validation is None:
        raise ConfigError(
            "data.train is not set", why="there are no samples", fix="give a Trainer its train_dataset, in Python"
        )
    lent = [place for place in (data.train, data.validation) if place is not None and place.startswith(PROGRAM)]
    if data.workers and lent:
        raise bad_value(
            "data.workers",
            data.workers,
            f"{lent[0].removeprefix(PROGRAM)} is an object of this process, which no worker has",
            "set it to 0, or name the place of a function that makes the dataset",
        )
    return data.describe()


def is_language_model(recipe: Recipe) -> str:
    """What is measured by the tokens that a model expects next, against what the model is made for."""
    family = recipe.model.family
    if not recipe.model.serves("language_modeling"):
        reason = f"{family} is made for {recipe.model.task()}, and does not say which token comes next"
        raise bad_value("task", recipe.task, reason, "take a language model, such as GPT-2")
    return f"{family} for {recipe.task}"


def check_measured(recipe: Recipe) -> str:
    """Text that a model is measured on, against what turns it into tokens."""
    from paddock.data.measuring.config import LambadaData, TextData

    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, LambadaData | TextData)
    if data.path is None:
        raise ConfigError(
            f"data.path is not set, and {recipe.task} reads it", why="there is no text to measure on", fix="set it"
        )
    if tokenizer.kind in ("none", "trained"):
        raise bad_value(
            "tokenizer.kind",
            tokenizer.kind,
            f"{data.path} is text, and there is no tokenizer beside the weights",
            "put the tokenizer that the model was trained with beside them, or set --tokenizer.kind gpt2 or file",
        )
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


ANY: Rules = {"model": model_fits}
TEXT: Rules = {**ANY, "sequence": sequence_fits}
CORPUS: Rules = {**TEXT, "corpus": check_corpus}
MASKED_CORPUS: Rules = {**TEXT, "corpus": check_masked_corpus}
SPANS: Rules = {**TEXT, "corpus": check_spans}
TEXT_ROWS: Rules = {**TEXT, "text": check_text_rows}
SEQUENCE_PAIRS: Rules = {**TEXT, "pairs": check_pairs}
OWN: Rules = {**ANY, "dataset": check_own_data}
IMAGES: Rules = {**ANY, "images": check_images}
MEASURES: Rules = {"model": is_language_model, "sequence": sequence_fits, "text": check_measured}
