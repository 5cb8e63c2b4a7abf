"""`python -m paddock.testing.simulated FOLDER`: make the package of a plug-in whose device does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from paddock.testing.simulated.injection import Injection
from paddock.testing.simulated.install import NAME, write_package


@dataclass(frozen=True)
class Options:
    """Make the package of a plug-in whose device does not exist. With FOLDER on PYTHONPATH, `--device NAME` finds it,
    in every process of a job."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Where to put it."""
    name: str = NAME
    """The kind of device to play: a vendor's, or one of its own."""
    lacks: tuple[str, ...] = ()
    """Operators that it has no kernel for, such as aten.gelu."""
    inject: tuple[str, ...] = ()
    """Operators that compute wrong numbers: OPERATOR[,MODULE[,SIZE[,forward|backward[,ONLY]]]], such as
    aten.mm,layers.1,1e-3,backward; an empty MODULE is everywhere. With ONLY, a number, that call alone is wrong."""
    broken_collectives: tuple[str, ...] = ()
    """Collectives that give wrong numbers, such as allreduce."""
    nondeterministic: float = 0.0
    """What sums and products differ by from one time to the next, relative to themselves."""
    float64: bool | None = None
    """Whether it has double precision; None is as the adapter of that kind says."""
    count: int = 8
    """Devices on a machine."""


def injection(text: str) -> Injection:
    """What a flag says of a wrong operator."""
    operator, module, size, direction, only = (text.split(",") + [""] * 5)[:5]
    told: dict[str, Any] = {"size": float(size)} if size else {}
    told |= {"direction": direction} if direction else {}
    return Injection(operator, module or None, **told, only=int(only) if only else None)


if __name__ == "__main__":
    options = tyro.cli(Options)
    write_package(
        options.folder,
        options.name,
        lacks=options.lacks,
        injections=tuple(map(injection, options.inject)),
        broken_collectives=options.broken_collectives,
        nondeterministic=options.nondeterministic,
        float64=options.float64,
        count=options.count,
    )
    print(f"PYTHONPATH={options.folder} paddock check device {options.name}")
