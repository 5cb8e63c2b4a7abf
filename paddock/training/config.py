"""The pieces of a recipe that the training loop reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from paddock.data.config import Part
from paddock.errors import ConfigError, bad_value
from paddock.schema import ConfigModel

MOST_SAMPLES = 2**40
"""In a batch: more than anybody has, and few enough to look for the sizes that it divides into."""


class BatchConfig(ConfigModel):
    """global = micro × data × accumulation; what is None follows from the rest."""

    micro: int | None = Field(4, gt=0, le=MOST_SAMPLES)
    """Micro-batch size: samples that go through a process at once."""
    global_: int | None = Field(None, alias="global", gt=0, le=MOST_SAMPLES)
    """Global batch size: samples in an optimizer step, over all processes; the layout never changes it."""
    accumulation: int | None = Field(None, gt=0, le=MOST_SAMPLES)
    """Gradient accumulation steps: micro-batches in an optimizer step, on each process."""


class OptimizerConfig(ConfigModel):
    """The optimizer. Weight decay is not applied to norms and biases."""

    name: Literal["adamw", "adam", "sgd", "adafactor"] = "adamw"
    """adamw: decoupled weight decay; adam: decay added to the gradient; sgd: with momentum; adafactor: keeps, of a
    matrix's squared gradients, the means of rows and columns only, and scales steps to the weights (a fused query, key
    and value is one matrix). --optimizer-preset has T5's settings."""
    lr: PositiveFloat = 1.5e-4
    """The peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's averages of the gradient and of its square."""
    eps: PositiveFloat = 1e-8
    """Added to Adam's denominator."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """sgd's momentum."""
    beta2_decay: float = Field(-0.8, lt=0)
    """Adafactor: step n takes n to this power of the new square, and the rest of the old."""
    clip_threshold: float = Field(1.0, ge=1)
    """Adafactor's update clipping: the largest root mean square of a parameter's step, before the learning rate."""
    min_scale: PositiveFloat = 1e-3
    """Adafactor: the learning rate is relative to a parameter's root mean square, or to this where that is smaller."""
    weight_decay: float = Field(0.01, ge=0)
    """Pull of the weights towards zero."""
    clip: float | None = Field(1.0, gt=0)
    """Gradient clipping: the largest gradient norm; larger gradients are scaled down to it. None does not clip."""

    @model_validator(mode="after")
    def _betas(self) -> OptimizerConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise bad_value("optimizer.betas", self.betas, "each must be at least 0 and below 1")
        return self

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> OptimizerConfig:
        others = ("betas", "eps", "momentum")
        for name in others if self.name == "adafactor" else ("beta2_decay", "clip_threshold", "min_scale"):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                words = " ".join(map(str, default)) if isinstance(default, tuple) else default
                raise bad_value(
                    f"optimizer.{name}",
                    value,
                    f"optimizer.name = {self.name} would ignore it",
                    f"leave it out, or set --optimizer.{name.replace('_', '-')} {words}",
                )
        return self


class ScheduleConfig(ConfigModel):
    """The learning rate over time: a linear warm-up, then a decay from optimizer.lr to min_lr."""

    name: Literal["constant", "linear", "cosine", "polynomial", "step", "inverse_sqrt"] = "cosine"
    """The form of the decay; inverse_sqrt: one over the square root of the step, without an end."""
    unit: Literal["steps", "epochs"] = "steps"
    """What warmup, decay_steps, step_size and hold count: optimizer steps, or passes over the training data."""
    warmup: int | float = Field(0, ge=0)
    """Warm-up as a number of steps or epochs (100), or as a fraction of the decay (0.01)."""
    decay_steps: int | None = Field(None, gt=0)
    """The step (or epoch) at which the decay ends; None is the end of the run."""
    min_lr: float = Field(0.0, ge=0)
    """The learning rate after the decay."""
    power: PositiveFloat = 2.0
    """polynomial: the exponent."""
    step_size: int | None = Field(None, gt=0)
    """step: steps (or epochs) between two drops."""
    factor: float = Field(0.1, gt=0, lt=1)
    """step: what each drop multiplies the rate by."""
    hold: int | None = Field(None, gt=0)
    """inverse_sqrt: the step (or epoch) up to which the rate stays at its peak; None is the end of the warm-up."""

    @model_validator(mode="after")
    def _check(self) -> ScheduleConfig:
        if self.warmup >= 1 and self.warmup != int(self.warmup):
            raise bad_value(
                "schedule.warmup",
                self.warmup,
                "a fraction is below 1, a number of steps is whole",
                "e.g. 0.01 or 100",
            )
        if self.name == "step" and self.step_size is None:
            raise ConfigError("schedule.name = step needs schedule.step_size", fix="set --schedule.step-size STEPS")
        if self.name != "step" and self.step_size is not None:
            raise bad_value("schedule.step_size", self.step_size, f"schedule.name = {self.name} would ignore it")
        if self.name != "inverse_sqrt" and self.hold is not None:
            raise bad_value("schedule.hold", self.hold, f"schedule.name = {self.name} would ignore it")
        if self.name == "inverse_sqrt":
            self._check_inverse_sqrt()
        return self

    def _check_inverse_sqrt(self) -> None:
        if self.decay_steps is not None:
            raise bad_value(
                "schedule.decay_steps",
                self.decay_steps,
                "schedule.name = inverse_sqrt has no end and would ignore it",
                "set --schedule.decay-steps None",
            )
        if self.hold is None and self.warmup == 0:
            raise ConfigError(
                "schedule.name = inverse_sqrt has no step to begin at",
                why="the rate is its peak at the end of schedule.warmup, or of schedule.hold",
                fix="set --schedule.warmup STEPS or --schedule.hold STEPS",
            )
        if self.hold is not None and self.warmup > self.hold:
            raise bad_value("schedule.hold", self.hold, f"the warm-up takes {self.warmup:g}, which is longer")


class PrecisionConfig(ConfigModel):
    """The number format of the computation; weights and optimizer state stay in float32."""

    compute: Literal["float32", "bfloat16", "float16"] = "float32"
    """Mixed precision (AMP, autocast): what matrix products and activations are computed in."""
    loss_scale: Literal["dynamic"] | PositiveFloat = "dynamic"
    """Loss scaling, for float16: the factor that keeps small gradients from vanishing."""
    initial_scale: PositiveFloat = 65536.0
    """float16, dynamic: where the scale begins."""
    scale_window: int = Field(2000, gt=0)
    """float16, dynamic: good steps before the scale doubles."""


class TrainConfig(ConfigModel):
    """How long, where, and from which seed. The first of steps, samples and epochs that is reached ends the run."""

    steps: int | None = Field(None, gt=0)
    """Optimizer steps."""
    samples: int | None = Field(None, gt=0)
    """Samples, over all processes."""
    epochs: int | None = Field(None, gt=0)
    """Passes over the training data."""
    seed: int = 1234
    """The seed of the weights, the data order and dropout."""
    device: str = "auto"
    """auto takes the accelerator that is there, else the CPU; or a name that `paddock doctor` lists."""
    callbacks: tuple[str, ...] = ()
    """What else sees the run, by name: callbacks that installed packages bring (entry point paddock.callbacks)."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile, of each block once; auto: for models of at least 50M parameters, and not on a CPU, where it wins
    nothing."""
    ema: float | None = Field(None, gt=0, lt=1)
    """EMA: keep an exponential moving average of the weights, such as 0.9999 of it and the rest of the newest after
    every step (less in the first steps); evaluations and whoever loads the checkpoint take the average. None keeps
    none."""
    hang_timeout: PositiveFloat | Literal["auto"] | None = "auto"
    """Hang watchdog: seconds without progress after which a job is taken to hang (a collective that never ends, a
    frozen process): all ranks leave their stacks in the run's errors/, one summary says who waits for whom, and it ends
    with exit code 6. auto: 300, and ten times what recent steps took where that is more. A first step, evaluations,
    checkpoints and callbacks get half an hour at least. None waits for ever, and so does auto where a Python program
    or notebook of your own trains in its own process."""
    replay_every: int | None = Field(None, gt=0)
    """Silent data corruption: compute the forward and backward passes of every so many steps twice, and compare them
    bit by bit before the update; the rank that differs is named (exit code 5). Costs such a step once more. None never
    does."""


class EvaluateConfig(ConfigModel):
    """Evaluation on the validation part, during training; and what `paddock evaluate` measures on."""

    every: PositiveInt | Literal["epoch"] | None = 1000
    """Steps between evaluations, or epoch; one is also made at the end. None makes none."""
    batches: int | None = Field(10, gt=0)
    """Global batches to evaluate; None is the whole validation part."""
    split: Part = "validation"
    """paddock evaluate: the part of a corpus to measure on (those of data.split). --split is the same."""
    stride: PositiveInt | None = None
    """paddock evaluate: a sliding window over a text. Windows of data.sequence_length tokens begin so many tokens
    apart, and only tokens that were not scored before count, which so see more of what stands before them. None: one
    window begins where the other ends."""
