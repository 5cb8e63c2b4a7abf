"""The flags of the systems that users come from: what each of them means here. `--help` and `paddock flags` print these
tables."""

from __future__ import annotations

from paddock.config.flags.alias import Alias, System, keep, no_meaning, rename, switch
from paddock.config.flags.elsewhere import DEEPSPEED, LIBAI, MINDFORMERS
from paddock.config.flags.megatron import MEGATRON_TOO
from paddock.config.flags.megatron_rare import MEGATRON_RARE
from paddock.config.flags.torchtitan import TORCHTITAN
from paddock.errors import bad_value, did_you_mean


def _none_if_zero(value: str) -> str:
    return "None" if float(value) == 0 else value


def _decay_style(value: str) -> list[str]:
    """Megatron-LM's schedules, one of which has another name here, and no end."""
    if value == "inverse-square-root":
        return ["--schedule.name", "inverse_sqrt", "--schedule.decay-steps", "None"]
    return ["--schedule.name", value]


def data_folder(path: str) -> list[str]:
    """The example's one argument without a flag."""
    return ["--data.source", "folder", "--data.path", path]


def _preset(value: str) -> list[str]:
    """T5's own settings: its optimizer keeps no first moment and no decay, clips updates instead of gradients, and
    had a rate of 1 / √max(step, 10000) in pretraining, relative to the size of each weight."""
    schedules = {
        "t5-pretraining": ["0.01", "--schedule.name", "inverse_sqrt", "--schedule.hold", "10000"],
        "t5-finetuning": ["0.001", "--schedule.name", "constant", "--schedule.hold", "None"],
    }
    if value not in schedules:
        choices = list(schedules)
        raise bad_value("--optimizer-preset", value, "there is no such preset", did_you_mean(value, choices))
    adafactor = (
        "--optimizer.name adafactor --optimizer.weight-decay 0 --optimizer.clip None --optimizer.betas 0.9 0.999"
    )
    plain = "--schedule.warmup 0 --schedule.decay-steps None --schedule.min-lr 0 --schedule.step-size None"
    return [*adafactor.split(), *plain.split(), "--optimizer.lr", *schedules[value]]


def _split(value: str) -> list[str]:
    """Megatron-LM's weights of the parts; or the part to measure on."""
    return ["--evaluate.split" if value.isalpha() else "--data.split", value]


def _steps(value: str) -> list[str]:
    """The ModelZoo's number of steps, which none or fewer are no end."""
    return ["--train.steps", value] if int(value) > 0 else []


COMMON = [
    rename("--steps", "train.steps"),
    rename("--seed", "train.seed"),
    rename("--device", "train.device"),
    Alias(
        ("--optimizer-preset",),
        "t5-pretraining or t5-finetuning: Adafactor and the schedule with which T5 was trained",
        _preset,
    ),
]

VIRTUAL_STAGE = "--num-layers-per-virtual-pipeline-stage"
MEGATRON = [
    rename("--num-layers", "model.layers"),
    rename("--hidden-size", "model.hidden"),
    rename("--num-attention-heads", "model.heads"),
    rename("--ffn-hidden-size", "model.feed-forward"),
    rename("--vocab-size", "model.vocab"),
    Alias(
        ("--seq-length",),
        "--data.sequence-length and --model.context",
        lambda value: ["--data.sequence-length", value, "--model.context", value],
    ),
    rename("--attention-dropout", "model.attention-dropout"),
    rename("--hidden-dropout", "model.dropout"),
    rename("--init-method-std", "model.init-std"),
    rename("--weight-decay --wd", "optimizer.weight-decay"),
    rename("--clip-grad", "optimizer.clip", _none_if_zero),
    rename("--adam-eps", "optimizer.eps"),
    keep("--adam-beta1", "the first of --optimizer.betas"),
    keep("--adam-beta2", "the second of --optimizer.betas"),
    rename("--optimizer", "optimizer.name"),
    rename("--learning-rate --lr", "optimizer.lr"),
    rename("--min-lr", "schedule.min-lr"),
    Alias(("--lr-decay-style",), "--schedule.name", _decay_style),
    rename("--lr-decay-iters", "schedule.decay-steps"),
    rename("--lr-warmup-fraction --lr-warmup-iters", "schedule.warmup"),
    rename("--micro-batch-size", "batch.micro"),
    rename("--global-batch-size", "batch.global"),
    rename("--num-accumulation-steps", "batch.accumulation"),
    rename("--train-iters", "train.steps"),
    Alias(
        ("--train-samples",),
        "--train.samples",
        lambda value: ["--train.samples", value, "--train.steps", "None"],
    ),
    switch("--checkpoint-activations", "--parallel.recompute", "full"),
    switch("--fp16", "--precision.compute", "float16"),
    switch("--bf16", "--precision.compute", "bfloat16"),
    rename("--loss-scale", "precision.loss-scale"),
    rename("--initial-loss-scale", "precision.initial-scale"),
    rename("--loss-scale-window", "precision.scale-window", lambda value: str(int(float(value)))),
    rename("--tensor-model-parallel-size", "parallel.tensor"),
    rename("--pipeline-model-parallel-size", "parallel.pipeline"),
    keep(VIRTUAL_STAGE, "--parallel.schedule interleaved, with --parallel.stages of that many layers"),
    rename("--num-gpus-per-node", "nproc-per-node"),
    rename("--num-nodes", "nnodes"),
    keep("--node-ips", "the same here: all machines, of which each finds its own place"),
    rename("--ctrl-port", "master-port"),
    Alias(
        ("--dataset", "--data-path"),
        "--data.path, with --data.source indexed",
        lambda value: ["--data.source", "indexed", "--data.path", value],
    ),
    Alias(("--split",), "--data.split; with train, validation or test --evaluate.split", _split),
    switch("--reset-position-ids", "--data.reset-position-ids"),
    switch("--reset-attention-mask", "--data.reset-attention-mask"),
    switch("--eod-mask-loss", "--data.eod-mask-loss"),
    rename("--load", "checkpoint.load"),
    rename("--save", "run-dir"),
    rename("--save-interval", "checkpoint.every"),
    rename("--log-interval", "log.every"),
    rename("--eval-interval", "evaluate.every"),
    rename("--eval-iters", "evaluate.batches"),
    no_meaning("--use-rdma", "the collective library picks the transport"),
    no_meaning("--multihead-attention-fusion", "fused attention is always on"),
    no_meaning(
        "--make-vocab-size-divisible-by",
        "the vocabulary is padded in memory as a layout needs, never in files",
        True,
    ),
    no_meaning("--metric-print-format", "metrics are a live bar on a terminal and plain lines elsewhere", True),
    no_meaning("--save-last", "the last step is always saved"),
    no_meaning(
        "--no-scale-tril-softmax-dropout-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion",
        "fusion is the compiler's choice; --train.compile off turns it off",
    ),
    no_meaning("--no-query-key-layer-scaling", "queries and keys are never scaled by layer"),
    *MEGATRON_TOO,
    *MEGATRON_RARE,
]

IMAGENET = [
    rename("-a --arch", "model.arch"),
    rename("-j --workers", "data.workers"),
    rename("--epochs", "train.epochs"),
    rename("-b --batch-size", "batch.global"),
    rename("--momentum", "optimizer.momentum"),
    rename("-p --print-freq", "log.every"),
    Alias(
        ("--resume",),
        "--checkpoint.load, with --checkpoint.resume",
        lambda value: ["--checkpoint.load", value, "--checkpoint.resume"],
    ),
    Alias(
        ("--pretrained",),
        "--checkpoint.load, with --checkpoint.weights-only",
        lambda value: ["--checkpoint.load", value, "--checkpoint.weights-only"],
    ),
    switch("-e --evaluate", "--evaluate-only"),
    switch("--benchmark", "--benchmark-only"),
    switch("--dummy", "--data.source", "synthetic"),
    switch("--channels-last", "--model.channels-last"),
    rename("--on-error", "data.on-error"),
    rename("--logfile", "log.file"),
    keep("--world-size", "--nnodes: the example counts machines"),
    keep("--rank", "--node-rank, beside --world-size"),
    keep("--dist-url", "--master-addr and --master-port, when there are several machines"),
    no_meaning("--dist-backend", "the device decides which collective library is used", True),
    no_meaning("--multiprocessing-distributed", "--nproc-per-node says how many processes each machine starts"),
    no_meaning("--gpu", "--device says which kind of device; each process takes its own", True),
    no_meaning("--start-epoch", "a run that goes on from a checkpoint knows its epoch", True),
]

MODEL_NAME, PER_RANK, EPOCH = "--model_name", "--batch_size", "--epoch"
DATASET_PATH, AUTOCAST = "--dataset_path", "--autocast"
TECORIGIN = [
    keep(f"{MODEL_NAME} --model-name", "the RECIPE, by any of its names"),
    Alias(
        (PER_RANK,),
        "--batch.micro: per rank, so that the global batch is that × the data replicas",
        lambda value: ["--batch.micro", value],
    ),
    keep(EPOCH, "--train.epochs, and no other end but --step"),
    Alias(("--step",), "--train.steps; 0 or less leaves the length to --epoch or the recipe", _steps),
    keep(
        f"{DATASET_PATH} --dataset-path", "--data.path, or the files of that folder; an empty one is the recipe's data"
    ),
    keep(AUTOCAST, "True: --precision.compute in the device's own type for mixed precision; False: float32"),
    rename("--nnode", "nnodes"),
]
"""The run interface of Tecorigin's ModelZoo, spelt as there. Its lr and device, and how processes are started
(nproc_per_node, nnodes, node_rank, master_addr, master_port), are called so here too."""

MODELARTS = [
    Alias(("--data_url",), f"{DATASET_PATH}, which may be an address", lambda value: [DATASET_PATH, value]),
    rename("--train_url", "run-dir"),
]

SYSTEMS = [
    System("Paddock", COMMON),
    System("Megatron-LM and OneFlow-GPT", MEGATRON),
    System("torchtitan", TORCHTITAN),
    System("DeepSpeed", DEEPSPEED),
    System("LiBai", LIBAI),
    System("MindFormers", MINDFORMERS),
    System("the ImageNet example (for resnet)", IMAGENET, ("resnet",), takes_folder=True),
    System("Tecorigin's ModelZoo", TECORIGIN),
    System("ModelArts", MODELARTS),
]
"""Where two have the same flag, the later one is meant."""
