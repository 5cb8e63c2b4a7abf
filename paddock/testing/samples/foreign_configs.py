"""Small configs in the form of MindFormers and LiBai, written for our tests and guides with those systems' keys."""

from __future__ import annotations

import json
from pathlib import Path

from paddock.files import atomic_write

MINDFORMERS = {
    "gpt2/run_small.yaml": """\
base_config: ['./task/context.yaml', './task/runner.yaml', './task/data.yaml', './model/small.yaml']

runner_config:
  epochs: 1
  batch_size: 1

parallel:
  parallel_mode: 1  # 0-data, 1-semi, 2-auto
  full_batch: True
  enable_parallel_optimizer: True

recompute_config:
  recompute: True
  parallel_optimizer_comm_recompute: False
  mp_comm_recompute: True
  recompute_slice_activation: True

parallel_config:
  data_parallel: 4
  model_parallel: 2
  pipeline_stage: 4
  optimizer_shard: True
  micro_batch_num: 24
  vocab_emb_dp: True
  gradient_aggregation_group: 4

use_parallel: True
seed: 7
run_mode: 'train'
trainer:
  type: CausalLanguageModelingTrainer
  model_name: 'small'
""",
    "gpt2/task/context.yaml": """\
context:
  mode: 0
  device_target: "Ascend"
  max_device_memory: "31GB"
parallel:
  parallel_mode: 0
  full_batch: False
""",
    "gpt2/task/runner.yaml": """\
runner_config:
  epochs: 3
  batch_size: 8
  sink_mode: True
runner_wrapper:
  type: MFTrainOneStepCell
  scale_sense: {type: DynamicLossScaleUpdateCell, loss_scale_value: 65536, scale_factor: 2, scale_window: 1000}
  use_clip_grad: True
optimizer: {type: FusedAdamWeightDecay, beta1: 0.9, beta2: 0.95, eps: 0.00000001, weight_decay: 0.1}
lr_schedule: {type: polynomial, learning_rate: 0.001, lr_end: 0.0001, warmup_steps: 2, total_steps: -1}
callbacks:
  - type: MFLossMonitor
  - type: CheckpointMointor
    prefix: "small"
    save_checkpoint_steps: 500
  - type: ObsMonitor
metric:
  type: PerplexityMetric
""",
    "gpt2/task/data.yaml": """\
train_dataset: &train_dataset
  data_loader: {type: MindDataset, dataset_dir: "", shuffle: True}
  input_columns: ["input_ids"]
  num_parallel_workers: 8
  drop_remainder: True
  batch_size: 8
train_dataset_task:
  type: CausalLanguageModelDataset
  dataset_config: *train_dataset
""",
    "gpt2/model/small.yaml": """\
model:
  model_config:
    type: GPT2Config
    seq_length: 32
    vocab_size: 512
    embedding_size: 64
    num_layers: 4
    num_heads: 4
    expand_ratio: 4
    hidden_act: "gelu"
    dropout_prob: 0.0
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    initializer_range: 0.02
    param_init_type: "float32"
    compute_dtype: "float32"
    checkpoint_name_or_path: ""
    top_k: 5
  arch:
    type: GPT2LMHeadModel
processor:
  type: GPT2Processor
""",
}
LIBAI = {
    "configs/common/train.py": """\
from omegaconf import DictConfig

from libai.config import LazyCall
from libai.evaluation import PPLEvaluator
from libai.scheduler import WarmupCosineLR

train = dict(
    output_dir="./output",
    train_micro_batch_size=1,
    train_iter=100,
    train_epoch=0,
    warmup_ratio=1 / 10,
    amp=dict(enabled=False),
    activation_checkpoint=dict(enabled=False),
    zero_optimization=dict(enabled=False, stage=1),
    checkpointer=dict(period=50, max_to_keep=2),
    evaluation=dict(enabled=False, evaluator=LazyCall(PPLEvaluator)(), eval_period=50, eval_iter=1e5),
    load_weight="",
    log_period=1,
    scheduler=LazyCall(WarmupCosineLR)(warmup_factor=0.001, alpha=0.01, warmup_method="linear"),
    dist=dict(
        data_parallel_size=1,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        pipeline_num_layers=None,
        custom_pipeline_stage_id=None,
    ),
    rdma_enabled=True,
    seed=1234,
)

train = DictConfig(train)
""",
    "configs/common/optim.py": """\
import oneflow as flow

from libai.config import LazyCall
from libai.optim import get_default_optimizer_params

optim = LazyCall(flow.optim.AdamW)(
    params=LazyCall(get_default_optimizer_params)(clip_grad_max_norm=1.0, clip_grad_norm_type=2.0),
    lr=1e-3,
    weight_decay=0.01,
    betas=(0.9, 0.999),
    eps=1e-8,
)
""",
    "configs/common/models/gpt.py": """\
from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import GPTForPreTraining

cfg = dict(
    hidden_layers=2,
    vocab_size=30522,
    hidden_size=64,
    ffn_hidden_size=4 * 64,
    num_attention_heads=4,
    max_seq_length=32,
    embedding_dropout_prob=0,
    attention_dropout_prob=0,
    output_dropout_prob=0,
    layernorm_epsilon=1e-5,
    initializer_range=0.02,
    bias_gelu_fusion=True,
)
cfg = DictConfig(cfg)
pretrain_model = LazyCall(GPTForPreTraining)(cfg=cfg)
""",
    "configs/common/data/gpt_dataset.py": """\
from omegaconf import OmegaConf

from libai.config import LazyCall
from libai.data import build_nlp_train_val_test_loader
from libai.data.datasets import GPT2Dataset
from libai.tokenizer import GPT2Tokenizer

tokenization = OmegaConf.create()
tokenization.tokenizer = LazyCall(GPT2Tokenizer)(vocab_file="/nowhere/vocab.json", merges_file="/nowhere/merges.txt")
tokenization.make_vocab_size_divisible_by = 128

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_nlp_train_val_test_loader)(
    dataset=[LazyCall(GPT2Dataset)(name="gpt-2", data_prefix="/nowhere/corpus", max_seq_length=1024, seed=1234)],
    splits=[[949.0, 50.0, 1.0]],
    weights=[1.0],
    num_workers=4,
)
""",
    "configs/gpt_small.py": """\
from .common.data.gpt_dataset import dataloader, tokenization
from .common.models.gpt import pretrain_model as model
from .common.optim import optim
from .common.train import train

tokenization.tokenizer.vocab_file = "vocab.json"
tokenization.tokenizer.merges_file = "merges.txt"
dataloader.train.dataset[0].data_prefix = "corpus_text_document"

model.cfg.hidden_layers = 4
train.dist.pipeline_num_layers = model.cfg.hidden_layers

for ds in dataloader.train.dataset:
    ds.max_seq_length = model.cfg.max_seq_length

optim.lr = 5.0e-4
train.update(dict(output_dir="output/gpt_small", log_period=2))
""",
    "projects/MT5/configs/mt5_small.py": """\
from configs.common.optim import optim
from configs.common.train import train
from libai.config import LazyCall
from libai.data.datasets import T5Dataset
from libai.scheduler import WarmupExponentialLR
from libai.tokenizer import BertTokenizer
from projects.MT5.mt5_model import MT5ForPreTraining

special_tokens = []
for i in range(100):
    special_tokens.append(f"<extra_id_{i}>")
tokenization = dict(
    tokenizer=LazyCall(BertTokenizer)(
        vocab_file="vocab.txt", do_lower_case=True, additional_special_tokens=special_tokens
    ),
    make_vocab_size_divisible_by=128,
)
dataloader = dict(
    train=dict(
        dataset=[
            LazyCall(T5Dataset)(
                data_prefix="zh_text_sentence", max_seq_length=64, max_seq_length_dec=24, masked_lm_prob=0.15
            )
        ],
        splits=[[949, 50, 1]],
    )
)
model = LazyCall(MT5ForPreTraining)(
    cfg=dict(
        hidden_size=64,
        hidden_layers=2,
        num_attention_heads=4,
        head_size=16,
        intermediate_size=128,
        model_type="mt5",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        embedding_dropout_prob=0.0,
        vocab_size=30522,
        layernorm_eps=1e-6,
        relative_attention_num_buckets=32,
        tie_word_embeddings=False,
        pretrained_model_path=None,
    )
)
train.update(
    dict(
        train_micro_batch_size=1,
        train_iter=20,
        train_epoch=1,
        dist=dict(
            data_parallel_size=2,
            tensor_parallel_size=2,
            pipeline_parallel_size=2,
            pipeline_num_layers=2 * model.cfg.hidden_layers,
        ),
        scheduler=LazyCall(WarmupExponentialLR)(warmup_factor=0.001, gamma=1.0, warmup_method="linear"),
    )
)
train.num_accumulation_steps = 4
""",
}
VOCABULARY = 300
"""Tokens of the vocabulary beside LiBai's GPT."""


def write_mindformers(folder: Path) -> Path:
    """A GPT-2 over 32 devices, in five files. Returns the one that is run."""
    _write(folder, MINDFORMERS)
    return folder / "gpt2" / "run_small.yaml"


def write_libai(folder: Path) -> Path:
    """A GPT and an mT5, with their common files and vocabularies. Returns the GPT's."""
    tokens = {chr(256 + number): number for number in range(VOCABULARY)}
    files = {"vocab.json": json.dumps(tokens), "merges.txt": "#version: 0.2\n"}
    files["vocab.txt"] = "".join(f"{token}\n" for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens))
    _write(folder, LIBAI | files)
    return folder / "configs" / "gpt_small.py"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(place) as stream:
            stream.write(text)
