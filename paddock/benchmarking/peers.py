"""Other libraries' models for the work of a recipe: the same shapes, dropout, number type and optimizer.

A peer runs as it comes (`default`); with a fused optimizer, the allocator settings and the memory format that we use
(`tuned`); and besides with its blocks compiled (`compiled`), or all of it at once (`compiled-whole`). Its best is the
best of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.config.rules import check_layout
from paddock.devices import DeviceAdapter
from paddock.errors import ConfigError, MachineError, bad_value, did_you_mean
from paddock.models.config import IGNORED, ModelConfig
from paddock.models.registry import example_batch, family_named
from paddock.tasks.registry import task_class
from paddock.training.precision import autocast_for

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe
    from paddock.training.config import OptimizerConfig

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class PeerModel:
    """A model of another library, and what it is given."""

    model: nn.Module
    loss: Callable[[Batch], Tensor]
    outputs: Callable[[Batch], object]


@dataclass(frozen=True)
class Peer:
    """A library, and which of our families it has."""

    package: str
    families: tuple[str, ...]
    build: Callable[[Any], PeerModel]


def _huggingface(config: ModelConfig) -> PeerModel:
    """transformers' model, by the config that we would export."""
    transformers = import_module("transformers")
    settings = family_named(config.family).huggingface().to_huggingface_config(config)
    theirs = transformers.AutoConfig.for_model(settings["model_type"], **_without(settings, "model_type"))
    theirs.use_cache = False
    model: Any = getattr(transformers, settings["architectures"][0])(theirs)
    if getattr(config, "tied", True) is False:
        # As when published weights are loaded: built from a config alone, newer versions tie it.
        head = model.get_output_embeddings()
        head.weight = nn.Parameter(head.weight.detach().clone())
    return PeerModel(model, lambda batch: model(**_renamed(batch, True)).loss, lambda batch: model(**_renamed(batch)))


def _without(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def _renamed(batch: Batch, labels: bool = False) -> dict[str, Tensor]:
    """One of our batches, in transformers' words."""
    if "images" in batch:
        return {"pixel_values": batch["images"]} | ({"labels": batch["labels"]} if labels else {})
    tokens = batch["tokens"]
    words = {"input_ids": tokens}
    names = {"token_types": "token_type_ids", "decoder_tokens": "decoder_input_ids"}
    words |= {theirs: batch[ours] for ours, theirs in names.items() if ours in batch}
    if "lengths" in batch:
        words["attention_mask"] = (torch.arange(tokens.shape[1]) < batch["lengths"].unsqueeze(1)).long()
    if not labels:
        return words
    target = batch["labels"]
    if "places" in batch:  # it scores every place, and is told which count
        everywhere = torch.full_like(tokens, IGNORED)
        return words | {"labels": everywhere.scatter(1, batch["places"], target)}
    if target.shape == (len(tokens), 2):
        return words | {"start_positions": target[:, 0], "end_positions": target[:, 1]}
    return words | {"labels": target}


def _image_model(model: nn.Module) -> PeerModel:
    def loss(batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["images"]), batch["labels"])

    return PeerModel(model, loss, lambda batch: model(batch["images"]))


def _timm(config: Any) -> PeerModel:
    return _image_model(import_module("timm").create_model(config.arch, num_classes=config.classes))


def _torchvision(config: Any) -> PeerModel:
    models = import_module("torchvision").models
    return _image_model(getattr(models, config.arch)(num_classes=config.classes))


def _litgpt(config: Any) -> PeerModel:
    """litgpt has no GPT-2; its nearest is Pythia's kind of model, in GPT-2's sizes, with layers one after the other and
    with one weight as embedding and head."""
    litgpt = import_module("litgpt")
    model = litgpt.GPT(
        litgpt.Config(
            block_size=config.context,
            vocab_size=config.vocab,
            padded_vocab_size=config.vocab,
            n_layer=config.layers,
            n_head=config.heads,
            n_embd=config.hidden,
            intermediate_size=config.feed_forward_width,
            parallel_residual=False,
            bias=True,
        )
    )
    model.transformer.wte.weight = model.lm_head.weight

    def loss(batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)

    return PeerModel(model, loss, lambda batch: model(batch["tokens"]))


PEERS = {
    "hf": Peer("transformers", ("gpt2", "bert", "t5", "resnet"), _huggingface),
    "timm": Peer("timm", ("resnet",), _timm),
    "torchvision": Peer("torchvision", ("resnet",), _torchvision),
    "litgpt": Peer("litgpt", ("gpt2",), _litgpt),
}
PUBLISHED = {"width": 64, "small_images": False, "norm": "batch", "stride": "v1.5", "label_smoothing": 0.0}
ONLY: dict[str, dict[str, Any]] = {
    "timm": PUBLISHED,
    "torchvision": PUBLISHED,
    "litgpt": {"dropout": 0.0, "attention_dropout": 0.0},
}
"""The one value that a peer knows of a model's field: with another its work would not be the same."""


def check_peer(name: str, recipe: Recipe) -> None:
    """An error, if there is no such peer, or if it cannot do this recipe's work here."""
    if name not in PEERS:
        raise ConfigError(f"--compare {name}", why="there is no such peer", fix=did_you_mean(name, list(PEERS)))
    peer, family = PEERS[name], recipe.model.family
    if family not in peer.families:
        able = [other for other, one in PEERS.items() if family in one.families]
        fix = f"compare with {' or '.join(able)}" if able else "measure it alone"
        raise ConfigError(f"{peer.package} has no {family}", fix=fix)
    for field, only in ONLY.get(name, {}).items():
        if (asked := getattr(recipe.model, field)) not in (only, None):  # None follows from another field
            why = f"{peer.package} knows {field.replace('_', ' ')} {only} alone: the work would not be the same"
            fix = f"set --model.{field.replace('_', '-')} {only}, or take another recipe"
            raise bad_value(f"model.{field}", asked, why, fix)
    try:
        import_module(peer.package)
    except Exception as error:  # a package that does not fit this torch fails in ways of its own
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        absent = missing == peer.package
        what = "is not installed" if absent else f"cannot be imported beside torch {torch.__version__}"
        fix = f"pip install {missing or peer.package}, as it was built for this torch"
        raise MachineError(f"{peer.package} {what}", why="" if absent else first, fix=fix) from error


def peer_step(recipe: Recipe, peer: str, setting: str, trains: bool, adapter: DeviceAdapter) -> Callable[[], object]:
    """What one iteration of a peer does, over a global batch in micro-batches as ours."""
    if setting != "default":
        adapter.prepare()
    torch.manual_seed(0)
    built = PEERS[peer].build(recipe.model)
    plan, shape = check_layout(recipe, 1).batch, recipe.data.sample_shape()
    batches = [example_batch(recipe.model, plan.micro, shape, number) for number in range(plan.accumulation)]
    if setting != "default" and "images" in batches[0]:
        built.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for batch in batches:
            batch["images"] = batch["images"].contiguous(memory_format=torch.channels_last)
    if setting == "compiled":
        for block in _blocks(built.model):
            block.compile()
    elif setting == "compiled-whole":
        built.model.compile()
    autocast = autocast_for(recipe.precision, adapter)
    if not trains:
        return _inference(recipe, built, batches, autocast)
    return _training(recipe, built, batches, autocast, setting)


def _blocks(model: nn.Module) -> list[nn.Module]:
    """What repeats, to be compiled each by itself; or, where nothing does, the whole."""
    lists = [found for found in model.modules() if isinstance(found, nn.ModuleList)]
    outermost = [one for one in lists if not any(one is not other and one in other.modules() for other in lists)]
    alike = [found for found in outermost if len(found) > 1 and len({type(block) for block in found}) == 1]
    return [block for found in alike for block in found] or [model]


def _training(
    recipe: Recipe, built: PeerModel, batches: Sequence[Batch], autocast: AbstractContextManager[Any], setting: str
) -> Callable[[], object]:
    parameters = list(built.model.parameters())
    optimizer = peer_optimizer(recipe.optimizer, parameters, fused=None if setting == "default" else True)
    built.model.train()

    def step() -> None:
        for batch in batches:
            with autocast:
                loss = built.loss(batch)
            (loss / len(batches)).backward()
        if recipe.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, recipe.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def peer_optimizer(
    config: OptimizerConfig, parameters: Sequence[nn.Parameter], fused: bool | None
) -> torch.optim.Optimizer:
    """torch's own, with the recipe's settings; as everywhere, only matrices decay."""
    groups = [
        {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        return torch.optim.SGD(groups, config.lr, config.momentum, fused=fused)
    if config.name not in ("adamw", "adam"):
        raise ConfigError(f"peers are trained with adamw, adam or sgd, not {config.name}", fix="--optimizer.name adamw")
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=fused)


def _inference(
    recipe: Recipe, built: PeerModel, batches: Sequence[Batch], autocast: AbstractContextManager[Any]
) -> Callable[[], object]:
    """What an evaluation asks of the model: outputs, or the loss where that is all there is to see."""
    built.model.eval()
    compute = built.outputs if task_class(recipe.task).judges_outputs else built.loss

    def infer() -> None:
        with torch.inference_mode(), autocast:
            for batch in batches:
                compute(batch)

    return infer
