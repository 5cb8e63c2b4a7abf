"""MindFormers' YAML as a recipe: files beneath one another, every key told of, and errors where it would be another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.config.foreign.conversion import Conversion, convert
from paddock.config.load import load_foreign, load_recipe
from paddock.config.rules import check_recipe
from paddock.errors import ConfigError
from paddock.testing.samples.foreign_configs import write_mindformers


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_mindformers(tmp_path)


def lines(conversion: Conversion) -> dict[str, Any]:
    return {line.key: line for line in conversion.lines if line.key}


def test_the_recipe_that_a_config_means(config: Path) -> None:
    recipe = load_recipe(config)
    parallel, batch = recipe.parallel, recipe.batch
    assert (parallel.data, parallel.tensor, parallel.pipeline) == (4, 2, 4)
    assert (parallel.shard, parallel.recompute) == ("optimizer", "full")
    assert (batch.micro, batch.global_) == (1, 1 * 4 * 24)
    assert (
        recipe.model.model_dump() | {"layers": 4, "hidden": 64, "heads": 4, "vocab": 512} == recipe.model.model_dump()
    )
    assert recipe.model.longest_sequence() == recipe.data.sample_shape().source == 32
    assert (recipe.train.epochs, recipe.train.steps, recipe.train.seed) == (1, None, 7)
    assert (recipe.optimizer.lr, recipe.optimizer.betas, recipe.optimizer.clip) == (1e-3, (0.9, 0.95), 1.0)
    schedule = recipe.schedule
    assert (schedule.name, schedule.power, schedule.min_lr, schedule.warmup) == ("polynomial", 1.0, 1e-4, 2)
    assert (recipe.checkpoint.every, recipe.log.every, recipe.evaluate.every) == (500, 1, None)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"source": "synthetic"})})
    assert str(check_recipe(recipe, 32).batch) == "global 96 = micro 1 × data 4 × accumulation 24"


def test_every_key_is_told_of_with_what_became_of_it(config: Path) -> None:
    conversion = convert(config, [])
    told = lines(conversion)
    keys = {key for key in conversion.account.values}
    assert set(told) == keys and len(keys) > 60
    assert told["seed"].outcome == "kept" and told["seed"].field == "train.seed"
    assert told["parallel_config.model_parallel"].field == "parallel.tensor"
    assert told["context.device_target"].outcome == "idle" and told["context.device_target"].note
    assert all(line.note for line in conversion.lines if line.outcome in ("idle", "near", "refused"))
    data = [line for line in conversion.lines if line.key == "train_dataset.data_loader.type"]
    assert data[0].outcome == "near" and "paddock preprocess" in data[0].note


def test_a_later_base_replaces_a_section_and_the_file_itself_is_merged_into_it(config: Path) -> None:
    """As MindFormers does: of two bases the later one's section counts whole."""
    (config.parent / "task" / "late.yaml").write_text("runner_config: {epochs: 5}\n")
    text = config.read_text().replace("'./model/small.yaml'", "'./model/small.yaml', './task/late.yaml'")
    config.write_text(text.replace("  epochs: 1\n  batch_size: 1\n", "  batch_size: 3\n"))
    told = lines(convert(config, []))
    assert told["runner_config.epochs"].value == 5 and told["runner_config.batch_size"].value == 3
    assert "runner_config.sink_mode" not in told


def test_a_config_without_parallel_sizes_has_replicas_alone(config: Path) -> None:
    recipe, conversion = load_foreign(config, ["use_parallel=False"])
    assert (recipe.parallel.data, recipe.parallel.tensor, recipe.parallel.shard) == ("auto", 1, "none")
    assert recipe.batch.global_ is None and lines(conversion)["parallel_config.model_parallel"].outcome == "idle"


@pytest.mark.parametrize(
    ("override", "section", "field", "value"),
    [
        ("model.model_config.hidden_act=fast_gelu", "model", "activation", "gelu_tanh"),
        ("recompute_config.select_recompute=True", "parallel", "recompute", "selective"),
        ("parallel_config.use_seq_parallel=True", "parallel", "sequence", True),
        ("parallel_config.optimizer_shard=False", "parallel", "shard", "none"),
        ("lr_schedule.type=CosineWithWarmUpLR", "schedule", "name", "cosine"),
        ("lr_schedule.warmup_ratio=0.1", "schedule", "warmup", 0.1),
        ("lr_schedule.total_steps=400", "schedule", "decay_steps", 400),
        ("model.model_config.compute_dtype=float16", "precision", "initial_scale", 65536),
        ("model.model_config.compute_dtype=bfloat16", "precision", "compute", "bfloat16"),
        ("model.model_config.eos_token=5", "data", "eod", 5),
        ("callbacks[1].keep_checkpoint_max=4", "checkpoint", "keep", 4),
        ("do_eval=True", "evaluate", "every", "epoch"),
        ("runner_wrapper.use_clip_grad=False", "optimizer", "clip", None),
        ("load_checkpoint=runs/before", "checkpoint", "load", "runs/before"),
    ],
)
def test_a_key_becomes_its_field(config: Path, override: str, section: str, field: str, value: object) -> None:
    recipe, conversion = load_foreign(config, [override])
    assert getattr(getattr(recipe, section), field) == value
    key = override.partition("=")[0]
    assert lines(conversion)[key].outcome != "idle"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("parallel.parallel_mode=2", "look for a layout itself"),
        ("parallel.full_batch=False", "samples of its own"),
        ("parallel_config.expert_parallel=2", "no experts"),
        ("micro_batch_interleave_num=2", "by itself"),
        ("model.model_config.hidden_act=swish", "no such activation"),
        ("model.model_config.type=LlamaConfig", "no such family"),
        ("model.arch.type=GPT2ForSequenceClassification", "no such model"),
        ("optimizer.type=Lamb", "no such optimizer"),
        ("lr_schedule.type=cosin", 'did you mean "cosine"'),
        ("lr_schedule.num_cycles=2", "goes down once"),
        ("load_checkpoint=gpt2.ckpt", "are not read"),
        ("runner_config.batchsize=3", 'did you mean "runner_config.batch_size"'),
        ("parallel_config.data_paralel=3", 'did you mean "parallel_config.data_parallel"'),
        ("callbacks[0].type=Sudoku", "no such callback"),
        ("trian.seed=3", "unknown to Paddock"),
    ],
)
def test_what_would_mean_something_else_is_an_error_with_the_key(config: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_foreign(config, [override])
    assert override.partition("=")[0] in str(caught.value) and says in str(caught.value)


def test_a_parallel_config_that_contradicts_the_number_of_processes(config: Path) -> None:
    recipe = load_recipe(config)
    with pytest.raises(ConfigError, match="parallel.data = 4") as caught:
        check_recipe(recipe, 16)
    assert "4 × tensor 2 × pipeline 4 = 32 processes, but 16" in caught.value.why


def test_a_wrong_value_is_told_with_the_key_it_comes_from(config: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_foreign(config, ["lr_schedule.learning_rate=-1.0"])
    assert caught.value.what.startswith("optimizer.lr") and "lr_schedule.learning_rate" in caught.value.why
    for override in ("runner_config.batch_size=many", "runner_config.batch_size=true", "use_parallel=maybe"):
        with pytest.raises(ConfigError, match=override.partition("=")[0]):
            load_foreign(config, [override])


def test_a_config_that_only_names_its_model_takes_the_recipe_of_that_name(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    says = {
        "runner_config": {"epochs": 1, "batch_size": 2},
        "optimizer": {"type": "adamw"},
        "lr_schedule": {"type": "constant", "learning_rate": 0.001},
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "gpt2_13b"},
    }
    file.write_text(yaml.safe_dump(says))
    assert load_recipe(file).model.num_units() == 40
    says["trainer"]["model_name"] = "gpt2_13bb"
    file.write_text(yaml.safe_dump(says))
    with pytest.raises(ConfigError, match='there is no recipe "gpt2_13bb"') as caught:
        load_recipe(file)
    assert "gpt2_13b" in caught.value.fix
    del says["trainer"]
    file.write_text(yaml.safe_dump(says))
    with pytest.raises(ConfigError, match="neither a model nor its name|model_config.type"):
        load_recipe(file)


QUESTIONS = """\
runner_config: {epochs: 2, batch_size: 12, sink_mode: False}
runner_wrapper: {type: TrainOneStepCell}
optimizer: {type: adamw, weight_decay: 0.01, eps: 0.00000001}
lr_schedule: {type: linear, learning_rate: 0.00003, warmup_ratio: 0.1, total_steps: -1}
use_parallel: False
seed: 42
trainer: {type: QuestionAnsweringTrainer, model_name: qa_bert_base_uncased}
model:
  arch: {type: BertForQuestionAnswering}
  model_config:
    {type: BertConfig, seq_length: 384, vocab_size: 30522, embedding_size: 768, num_layers: 12, num_heads: 12,
     expand_ratio: 4, hidden_act: gelu, hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1,
     max_position_embeddings: 512, type_vocab_size: 2, post_layernorm_residual: True, use_relative_positions: False,
     num_labels: 3}
train_dataset: {data_loader: {type: SQuADDataLoader, dataset_dir: ./squad/, stage: train}}
metric: {type: SQuADMetric, dataset_dir: ./squad/}
"""
PAIRS = """\
runner_config: {epochs: 2, batch_size: 4}
optimizer: {type: AdamWeightDecay}
lr_schedule: {type: constant, learning_rate: 0.001}
model:
  arch: {type: T5ForConditionalGeneration}
  model_config:
    {type: T5Config, d_model: 512, d_ff: 2048, d_kv: 64, num_heads: 8, num_hidden_layers: 6, vocab_size: 32128,
     hidden_act: relu, hidden_dropout_prob: 0.1, scale_output: true, layer_norm_epsilon: 0.000001}
train_dataset:
  data_loader: {type: WMT16DataLoader, dataset_dir: /data/wmt}
  tokenizer: {type: t5_small, src_max_length: 256, tgt_max_length: 64, prefix: "translate:", stage: train}
"""


def test_questions_and_pairs_of_texts_have_their_tasks(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(QUESTIONS)
    asks = load_recipe(file)
    shipped = load_recipe("qa_bert_base_uncased")
    assert asks.task == "question_answering" and asks.model.num_parameters() == shipped.model.num_parameters()
    assert (asks.batch.micro, asks.optimizer.lr, asks.train.epochs) == (12, 3e-5, 2)
    assert asks.data.describe() == "squad ./squad/"
    file.write_text(PAIRS)
    pairs = load_recipe(file)
    assert pairs.task == "sequence_to_sequence" and pairs.data.describe().startswith("text /data/wmt/train.source")
    assert (pairs.data.sample_shape().source, pairs.data.sample_shape().target) == (256, 64)


BOMB = "runner_config: &a0 {x: [1, 1]}\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 12)}]\n" for number in range(1, 6)
)
"""A few lines that mean more values than a machine wants to look at."""


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("base_config: ['./run_small.yaml']\n", "goes in a circle"),
        ("base_config: ['./a.yaml']\n", "which is not there"),
        ("base_config: {a: 1}\n", "it is a list of files"),
        ("runner_config: [1, 2]\nseed: 3\n", "would mean something else"),
        (BOMB, "more than"),
        ("runner_config: !!python/object/apply:os.system ['touch owned']\n", "not valid YAML"),
    ],
)
def test_damaged_files(config: Path, damage: str, says: str) -> None:
    config.write_text(damage)
    with pytest.raises(ConfigError, match=says):
        load_recipe(config)
    assert not Path("owned").exists()
