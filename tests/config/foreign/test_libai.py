"""LiBai's Python configs as recipes: read and never executed, with what cannot be read listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.config.foreign.conversion import Conversion, convert
from paddock.config.foreign.python_files import read_python
from paddock.config.load import load_foreign, load_recipe
from paddock.config.rules import check_layout
from paddock.errors import ConfigError
from paddock.testing.samples.foreign_configs import VOCABULARY, write_libai


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_libai(tmp_path)


def lines(conversion: Conversion) -> dict[str, Any]:
    return {line.key: line for line in conversion.lines if line.key}


def test_a_gpt_with_its_common_files(config: Path) -> None:
    recipe, conversion = load_foreign(config, [])
    assert not conversion.unread
    model = recipe.model
    assert model.model_dump() | {"layers": 4, "hidden": 64, "heads": 4, "activation": "gelu"} == model.model_dump()
    assert model.vocabulary() == 384, f"{VOCABULARY} tokens, up to a multiple of 128"
    assert (recipe.data.path, recipe.data.sample_shape().source) == (("corpus_text_document",), 32)
    assert (recipe.tokenizer.kind, recipe.tokenizer.merges) == ("gpt2", "merges.txt")
    assert (recipe.optimizer.lr, recipe.optimizer.clip, recipe.train.steps) == (5e-4, 1.0, 100)
    assert (recipe.schedule.name, recipe.schedule.warmup, recipe.schedule.min_lr) == ("cosine", 0.1, 5e-6)
    assert (recipe.log.every, recipe.checkpoint.every, recipe.evaluate.every) == (2, 50, None)
    told = lines(conversion)
    assert set(told) == set(conversion.account.values)
    assert all(line.note for line in conversion.lines if line.outcome in ("idle", "near"))


def test_the_mt5_of_the_demo(config: Path) -> None:
    recipe, conversion = load_foreign(config.parents[1] / "projects/MT5/configs/mt5_small.py", [])
    model: Any = recipe.model
    assert recipe.task == "span_corruption" and (model.gated, model.tied, model.scale_head) == (True, False, False)
    assert recipe.tokenizer.extra_ids == 100 and model.decoder_start == 5 + VOCABULARY
    assert model.vocab == 512 and model.head_size == 16
    assert (recipe.parallel.data, recipe.parallel.tensor, recipe.parallel.pipeline) == ("auto", 2, 2)
    assert str(check_layout(recipe, 8).batch) == "global 8 = micro 1 × data 2 × accumulation 4"
    assert recipe.schedule.name == "constant" and recipe.train.steps == 20
    assert lines(conversion)["train.train_epoch"].outcome == "near"


def test_overrides_are_as_if_they_stood_in_the_file(config: Path) -> None:
    words = ["train.dist.tensor_parallel_size=2", "train.dist.pipeline_parallel_size=2", "train.amp.enabled=True"]
    words += ["train.dist.custom_pipeline_stage_id=[0,0,0,1]", "dataloader.train.dataset[0].max_seq_length=16"]
    words += ["train.zero_optimization.enabled=True", "train.zero_optimization.stage=3", "optim.lr=1e-4"]
    recipe, _ = load_foreign(config, words)
    assert (recipe.parallel.tensor, recipe.parallel.pipeline, recipe.parallel.stages) == (2, 2, (0, 0, 0, 1))
    assert (recipe.precision.compute, recipe.parallel.shard, recipe.optimizer.lr) == ("float16", "parameters", 1e-4)
    assert recipe.data.sample_shape().source == 16
    with pytest.raises(ConfigError, match="train.dist.tensor_paralel_size"):
        load_foreign(config, ["train.dist.tensor_paralel_size=2"])
    with pytest.raises(ConfigError, match="cannot be set"):
        load_foreign(config, ["train.seed.deep=2"])


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.scheduler._target_=libai.scheduler.WarmupMultiStepLR", "no such schedule"),
        ("optim._target_=oneflow.optim.LAMB", "no such optimizer"),
        ("optim.params.weight_decay_bias=0.1", "have no decay"),
        ("model.cfg.apply_residual_post_layernorm=True", "passes by the norms"),
        ("tokenization.tokenizer.vocab_file=nowhere.json", "it is not there"),
        ("model._target_=libai.models.BertForPreTraining", "norms before each part"),
        ("model._target_=libai.models.SwinTransformer", "no such model"),
    ],
)
def test_what_would_mean_something_else_is_an_error_with_the_key(config: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_foreign(config, [override])
    assert override.partition("=")[0] in str(caught.value) and says in str(caught.value)


EXECUTES = """
import os
os.system("touch owned")
__import__("os").system("touch owned")
open("owned", "w").write("x")
train.seed = os.getpid()
train.extra = [exec("import os; os.mkdir('owned')") for _ in range(1)]
eval("open('owned', 'w')")
@open("owned", "w").write
def decorated(): pass
class Sub(open("owned", "w").__class__): pass
if os.path.exists("/"):
    train.train_iter = 7
with open("owned", "w"): pass
train.output_dir = os.environ["HOME"]
"""


def test_nothing_is_executed_and_what_would_have_to_be_is_listed(config: Path) -> None:
    config.write_text(config.read_text() + EXECUTES)
    conversion = convert(config, [])
    assert not Path("owned").exists()
    assert any("os.system" in place and "line" in place for place in conversion.unread)
    assert any("if os.path.exists" in place for place in conversion.unread)
    told = lines(conversion)
    assert told["train.seed"].outcome == "refused" and "os.getpid()" in str(told["train.seed"].value)
    assert told["train.output_dir"].outcome == "idle", "a key without a meaning need not be read"
    with pytest.raises(ConfigError, match=r"train\.seed"):
        conversion.check()
    told = lines(convert(config, ["train.seed=3", "train.extra=1"]))
    assert told["train.seed"].outcome == "kept"


def test_a_lone_file_takes_what_libai_says_itself_and_lists_what_is_missing(config: Path, tmp_path: Path) -> None:
    lone = tmp_path / "alone" / "gpt.py"
    lone.parent.mkdir()
    text = config.read_text() + "model.cfg.hidden_size = 64\nmodel.cfg.num_attention_heads = 4\n"
    lone.write_text(text + "model.cfg.max_seq_length = 32\n")
    for name in ("configs", "projects"):
        (tmp_path / name).rename(tmp_path / f"{name}-elsewhere")
    recipe, conversion = load_foreign(lone, [])
    assert recipe.train.steps == 10000 and recipe.checkpoint.every == 5000 and recipe.optimizer.lr == 5e-4
    assert len([place for place in conversion.unread if "is imported and not there" in place]) == 4
    lone.write_text(text.replace("model.cfg.hidden_layers = 4", ""))
    with pytest.raises(ConfigError, match="model.cfg.hidden_layers"):
        load_recipe(lone)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from .b import x\n", "in a circle"),
        ("x = (\n", "not valid Python"),
        ("x = " + "(" * 300 + "1" + ")" * 300, "not valid Python|nested"),
        ("x = " + "-" * 3000 + "1\n", "nested|not valid"),
        ("x = " + "+".join(["1"] * 3000) + "\n", "nested"),
        ("x = 1\0\n", "not valid Python"),
        ("a = dict()\na.b = a\ntrain = a\n", "nested too deeply, or in itself"),
        ("train = dict(x=9**9**9**9)\n", "no model"),
        ("train = dict(x=[0] * 10**12)\n", "no model"),
        ("x = 'a' * 10**12\n", "no model"),
        ("for i in range(10**9):\n    pass\n", "no model"),
        ("a = dict(x=1)\nfor i in range(40):\n    a = dict(x=a, y=a)\ntrain = a\n", "nested|more than|no model"),
        ("for i in range(9000):\n  for j in range(9000):\n    x = 1\n", "too large"),
        ("", "no model"),
    ],
)
def test_damaged_and_hostile_files(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "b.py").write_text("from .a import x\n")
    file = tmp_path / "a.py"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_recipe(file)


def test_what_is_understood_of_python(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import oneflow.nn as nn\nstages = [0] * 2 + [1] * 2\nwidth = 4 * 768 // 2 - 1\nname = f'w{width}' + 'x'\n"
        "pair = dict(a=1, b=[dict(c=-2.5)])\npair.update(d=not True)\npair.b[0].c = pair.a / 2\n"
        "first, second = [1, 2]\npair['e']: int = 3\nkind = nn.Linear\nunread = max(1, 2)\n"
    )
    config = read_python(file)
    names = config.names
    assert names["stages"] == [0, 0, 1, 1] and names["width"] == 1535 and names["name"] == "w1535x"
    assert names["pair"] == {"a": 1, "b": [{"c": 0.5}], "d": False, "e": 3} and names["second"] == 2
    assert str(names["kind"]) == "oneflow.nn.Linear"
    assert [place.line for place in config.unreadable] == [11]
