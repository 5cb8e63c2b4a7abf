"""The rest of Megatron-LM's common flags, torchtitan's and DeepSpeed's: mapped, or told what happens instead."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.cli.arguments import RecipeCommand, parse_recipe_command
from paddock.cli.main import run
from paddock.config.flags.tables import SYSTEMS
from paddock.config.overrides import field_kinds
from paddock.config.recipe import recipe_class
from paddock.errors import ConfigError

STEP_20 = "runs/a/checkpoints/step-00000020"


@dataclass(frozen=True)
class Options:
    """Nothing but a run directory."""

    run_dir: str | None = None


def parse(*words: str) -> RecipeCommand[Options]:
    return parse_recipe_command(Options, "train", [word for text in words for word in text.split()])


@pytest.mark.parametrize(
    ("flags", "section", "field", "value"),
    [
        ("--seq-length 64 --max-position-embeddings 128", "model", "context", 128),
        ("--max-position-embeddings 128 --seq-length 64", "model", "context", 128),
        ("--max-position-embeddings=128 --seq-length 64", "data", "sequence_length", 64),
        ("--sequence-parallel", "parallel", "sequence", True),
        ("--use-distributed-optimizer", "parallel", "shard", "optimizer"),
        ("--use-torch-fsdp2", "parallel", "shard", "parameters"),
        ("--recompute-activations", "parallel", "recompute", "selective"),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "parallel",
            "recompute",
            "full",
        ),
        ("--tensorboard-dir boards", "log", "tensorboard", True),
        ("--vocab-file v.json --merge-file m.txt", "tokenizer", "kind", "gpt2"),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file v.json --merge-file m.txt", "tokenizer", "merges", "m.txt"),
        ("--vocab-file vocab.txt --tokenizer-type BertWordPieceLowerCase", "tokenizer", "lower_case", True),
        ("--vocab-file vocab.txt --tokenizer-type BertWordPieceCase", "tokenizer", "lower_case", False),
        ("--tokenizer-type SentencePieceTokenizer --tokenizer-model s.model", "tokenizer", "model", "s.model"),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model folder", "tokenizer", "path", "folder"),
        ("--tokenizer-type NullTokenizer", "tokenizer", "kind", "none"),
        ("--mock-data", "data", "source", "synthetic"),
        ("--async-save", "checkpoint", "asynchronous", True),
        ("--context-parallel-size 1 --position-embedding-type learned_absolute", "model", "layers", 24),
        ("--training.steps 7", "train", "steps", 7),
        ("--training.seq_len 64", "data", "sequence_length", 64),
        ("--training.seq-len 64", "data", "sequence_length", 64),
        ("--training.local_batch_size 2", "batch", "micro", 2),
        ("--parallelism.tensor_parallel_degree 2", "parallel", "tensor", 2),
        ("--parallelism.pipeline_parallel_schedule Interleaved1F1B", "parallel", "schedule", "interleaved"),
        ("--parallelism.data_parallel_shard_degree -1", "parallel", "shard", "parameters"),
        ("--activation_checkpoint.mode selective", "parallel", "recompute", "selective"),
        ("--checkpoint.async_mode async", "checkpoint", "asynchronous", True),
        ("--lr_scheduler.warmup_steps 5", "schedule", "warmup", 5),
        ("--zero-stage 3", "parallel", "shard", "parameters"),
        ("--zero_stage 2", "parallel", "shard", "optimizer"),
        ("train.dist.tensor_parallel_size=2", "parallel", "tensor", 2),
        ("train.amp.enabled=True", "precision", "compute", "float16"),
        ("train.dist.custom_pipeline_stage_id=[0,0,1,1]", "parallel", "stages", (0, 0, 1, 1)),
        ("--options parallel_config.model_parallel=2 recompute_config.recompute=True", "parallel", "recompute", "full"),
        ("parallel.tensor=2 train.steps=5", "train", "steps", 5),
        ("--load runs/a --ckpt-step 100", "checkpoint", "load", "runs/a/checkpoints/step-00000100"),
        ("--ckpt-step 7 --load runs/a/checkpoints/", "checkpoint", "load", "runs/a/checkpoints/step-00000007"),
        ("--pretrained-checkpoint runs/a", "checkpoint", "weights_only", True),
        ("--load runs/none --pretrained-checkpoint runs/a", "checkpoint", "load", "runs/a"),
        ("--lr-decay-style inverse-square-root --min-lr 0", "schedule", "name", "inverse_sqrt"),
        ("--most-recent-k -1", "checkpoint", "keep", None),
        ("--full-validation", "evaluate", "batches", None),
        ("--recompute-modules core_attn mlp --recompute-granularity selective", "parallel", "recompute", "selective"),
        (
            "--num-layers 8 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
            "parallel",
            "stages",
            (0, 0, 1, 1, 2, 2, 3, 3),
        ),
        ("--lr_scheduler.min_lr_factor 0.1 --optimizer.lr 0.5", "schedule", "min_lr", 0.05),
        ("--optimizer.beta2 0.95", "optimizer", "betas", (0.9, 0.95)),
        ("--checkpoint.initial_load_path runs/a", "checkpoint", "weights_only", True),
        (
            "--checkpoint.no_initial_load_model_only --checkpoint.initial_load_path runs/a",
            "checkpoint",
            "weights_only",
            False,
        ),
        ("--checkpoint.initial_load_path runs/a --checkpoint.load_step 20", "checkpoint", "load", STEP_20),
        ("--checkpoint.initial_load_path runs/a --checkpoint.load_step -1", "checkpoint", "load", "runs/a"),
        ("--checkpoint.keep_latest_k 0", "checkpoint", "keep", None),
        ("--comm.train_timeout_seconds 100", "train", "hang_timeout", 100),
        ("--parallelism.no_enable_sequence_parallel", "parallel", "sequence", False),
        ("--metrics.enable_wandb", "log", "track", "wandb"),
        ("--training.dataset c4_test --training.dataset_path a.txt", "data", "source", "text"),
        ("--gradient_checkpointing", "parallel", "recompute", "full"),
    ],
)
def test_a_flag_of_theirs_sets_a_field(flags: str, section: str, field: str, value: object) -> None:
    command = parse("gpt2", flags)
    assert getattr(getattr(command.recipe, section), field) == value


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ("--swiglu", "--swiglu has nothing here"),
        ("--num-query-groups 4", "--num-query-groups has nothing here"),
        ("--context-parallel-size 2", "--context-parallel-size = 2"),
        ("--position-embedding-type rope", "--position-embedding-type = rope"),
        ("--recompute-granularity some", "--recompute-granularity = some"),
        ("--tokenizer-type TikTokenizer", "--tokenizer-type = TikTokenizer"),
        ("--zero-stage 4", "--zero-stage = 4"),
        ("--cpu-offload", "--cpu-offload has nothing here"),
        ("--run_mode predict", "--run_mode = predict"),
        ("--job.config_file llama.toml", "--job.config_file has nothing here"),
        ("--training.dataset c4", "--training.dataset = c4"),
        ("--quantize.linear.float8.recipe_name rowwise", "--quantize.linear.float8.recipe_name has nothing here"),
        ("--use-rotary-position-embeddings", "--use-rotary-position-embeddings has nothing here"),
        ("--qk-layernorm", "--qk-layernorm has nothing here"),
        ("--moe-router-topk 2", "--moe-router-topk has nothing here"),
        ("--ckpt-step 100", "--ckpt-step = 100"),
        ("--hostfile hosts", "--hostfile has nothing here"),
        ("--fp16=false", "--fp16 = false"),
        ("--num-virtual-stages-per-pipeline-rank 2", "--num-virtual-stages-per-pipeline-rank = 2"),
    ],
)
def test_what_would_be_another_model_or_training_is_an_error_that_says_why(flags: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what.replace("[", r"\[")) as caught:
        parse("gpt2", flags)
    assert caught.value.why and caught.value.fix


@pytest.mark.parametrize(
    "flag",
    [
        "--checkpoint.folder checkpoint",
        "--validation.enable",
        "--optimizer.implementation fused",
        "--training.deterministic",
        "--debug.deterministic",
        "--profile",
        "--profile-ranks 0 1",
        "--deterministic-mode",
        "--create-attention-mask-in-dataloader",
        "--recompute-modules core_attn",
        "--ddp-bucket-size 100",
        "--no_ssh",
    ],
)
def test_what_changes_no_result_is_told(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("gpt2", flag).recipe == parse("gpt2").recipe
    assert f"note: {flag.split()[0]}: " in capsys.readouterr().err


def test_to_skip_training_is_to_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "gpt2/tiny", "--skip-train", "--dry-run"]) == 2
    assert "--evaluate-only" in capsys.readouterr().err


def test_a_checkpoint_that_must_be_there_is_no_new_beginning(tmp_path: Path) -> None:
    command = parse("gpt2", f"--load {tmp_path} --save {tmp_path} --exit-on-missing-checkpoint")
    assert command.recipe.checkpoint.load == str(tmp_path)


def test_what_has_no_meaning_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    silent = "--use-mcore-models --overlap-grad-reduce --attention-backend flash --distributed-timeout-minutes 60"
    parse("gpt2", silent, "--no-load-rng --deepspeed --training.compile --sink_mode True")
    notes = capsys.readouterr().err
    for flag in ("--use-mcore-models", "--overlap-grad-reduce", "--attention-backend", "--no-load-rng", "--deepspeed"):
        assert f"note: {flag}: " in notes


def test_every_row_of_the_tables_ends_in_fields_options_or_a_word() -> None:
    """No alias names a field that no recipe has."""
    pairs = [("gpt2", "language_modeling"), ("bert", "masked_language_modeling"), ("t5", "span_corruption")]
    pairs += [("resnet", "image_classification"), ("bert", "question_answering")]
    known = {f"--{path.replace('_', '-')}" for pair in pairs for path in field_kinds(recipe_class(*pair))}
    known |= {"--run-dir", "--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port"}
    known |= {"--evaluate-only", "--benchmark-only", "--min-nodes"}
    for system in SYSTEMS:
        for alias in system.aliases:
            if not alias.means.startswith("--") or " " in alias.means or alias.means.endswith((",", ";")):
                continue
            assert alias.means in known, (system.name, alias.flags)


def test_megatrons_flags_alone_are_a_gpt2() -> None:
    command = parse("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --mock-data")
    assert command.name == "gpt2" and command.recipe.model.num_units() == 2
    with pytest.raises(ConfigError, match="needs a recipe"):
        parse("--steps 3")


def test_load_and_save_in_one_new_place_start_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "checkpoint"
    command = parse("gpt2", f"--load {place} --save {place}")
    assert command.recipe.checkpoint.load == "auto" and command.options.run_dir == str(place)
    assert "has no checkpoint yet" in capsys.readouterr().err
    (place / "checkpoints").mkdir(parents=True)
    assert parse("gpt2", f"--load {place} --save {place}").recipe.checkpoint.load == str(place)
    elsewhere = parse("gpt2", f"--load {tmp_path / 'other'} --save {place}")
    assert elsewhere.recipe.checkpoint.load == str(tmp_path / "other"), "another place is not taken for a new one"


def test_a_deepspeed_file_says_fields_and_flags_beside_it_count(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    says = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 10, "total_num_steps": 100}},
    }
    file.write_text(json.dumps(says))
    recipe = parse("gpt2", f"--deepspeed --deepspeed_config {file} --clip-grad 2.0").recipe
    assert (recipe.batch.micro, recipe.batch.global_, recipe.batch.accumulation) == (2, None, 4)
    assert (recipe.parallel.shard, recipe.precision.compute, recipe.optimizer.clip) == ("optimizer", "bfloat16", 2.0)
    assert (recipe.optimizer.lr, recipe.optimizer.betas) == (3e-4, (0.9, 0.95))
    assert (recipe.schedule.name, recipe.schedule.warmup, recipe.schedule.decay_steps) == ("cosine", 10, 100)
    for damage, what in (
        ("[1]", "not a DeepSpeed config"),
        ("{", "not valid JSON"),
        ('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}', "would mean something else"),
        ('{"train_batchsize": 3}', "would mean something else"),
        ('{"amp": {"enabled": true}}', "mixed precision is fp16 or bf16"),
        ('{"sparse_gradients": true}', "gradients of embeddings are whole"),
        ('{"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1}}}', "a part of the learning rate"),
    ):
        file.write_text(damage)
        with pytest.raises(ConfigError) as caught:
            parse("gpt2", f"--deepspeed_config {file}")
        assert what in str(caught.value)


def test_what_a_deepspeed_file_switches_off_or_calls_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    says = {
        "train_micro_batch_size_per_gpu": 2,
        "torch_autocast": {"enabled": True, "dtype": "torch.bfloat16"},
        "tensor_parallel": {"autotp_size": 2},
        "curriculum_learning": {"enabled": False, "curriculum_type": "seqlen"},
        "optimizer": {"type": "Adam", "params": {"lr": 0.5, "torch_adam": True}},
        "scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1, "warmup_type": "linear"}},
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    file.write_text(json.dumps(says))
    recipe = parse("gpt2", f"--deepspeed_config {file}").recipe
    assert (recipe.precision.compute, recipe.parallel.tensor, recipe.schedule.min_lr) == ("bfloat16", 2, 0.05)


@pytest.mark.parametrize("word", ["tensor_model_parallel", "--tensor-model-parallel-size", "TENSOR-MODEL"])
def test_flags_are_found_by_any_spelling(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["flags", word]) == 0
    assert "--tensor-model-parallel-size" in capsys.readouterr().out


def test_flags_finds_the_words_of_every_system(capsys: pytest.CaptureFixture[str]) -> None:
    for word, wanted in {
        "zero": "--parallel.shard",
        "gradient checkpointing": "--parallel.recompute",
        "vocab_emb_dp": "embedding and head are split",
        "pipeline_parallel_degree": "--parallel.pipeline",
        "sink_mode": "the loop is one",
        "nproc": "--nproc-per-node",
    }.items():
        assert run(["flags", word]) == 0
        assert wanted in capsys.readouterr().out, word
    assert run(["flags", "recompute", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"Megatron-LM and OneFlow-GPT", "torchtitan", "Paddock"} <= {row["system"] for row in rows}
    assert run(["flags"]) == 0
    page = capsys.readouterr().out
    assert all(flag in page for system in SYSTEMS for alias in system.aliases for flag in alias.flags)
    assert run(["flags", "optimiser"]) == 2 and "did you mean" in capsys.readouterr().err
