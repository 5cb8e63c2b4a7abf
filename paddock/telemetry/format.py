"""Numbers for people: three digits or so, and a unit. Shared by the console, the log file and the cards."""

from __future__ import annotations

import math


def count(value: float) -> str:
    """1234567 → `1.2M`; below a thousand, as it is."""
    if float(value).is_integer() and abs(value) < 1000:
        return str(int(value))
    scaled, prefix = _scale(value, ("", "k", "M", "B", "T"))
    return f"{_short(scaled)}{prefix}"


def rate(value: float) -> str:
    """A number per second, without its unit: 21.34 → `21.3`, 2712 → `2.7k`, 0.1234 → `0.12`."""
    if 0 < abs(value) < 0.995:
        return f"{value:.2g}"
    scaled, prefix = _scale(value, ("", "k", "M", "G"))
    return f"{_short(scaled)}{prefix}"


def bytes_(value: float) -> str:
    """3100000000 → `3.1 GB`. Powers of 1000, as the prefixes say."""
    scaled, prefix = _scale(value, ("", "k", "M", "G", "T", "P"))
    return f"{scaled:.0f} B" if not prefix else f"{_short(scaled)} {prefix}B"


def flops(value: float) -> str:
    """2.55e11 → `255 GFLOP/s`."""
    scaled, prefix = _scale(value, ("", "k", "M", "G", "T", "P", "E"))
    return f"{_short(scaled)} {prefix}FLOP/s"


def percent(fraction: float) -> str:
    """0.123 → `12%`; below ten percent one more digit: `3.4%`."""
    if not math.isfinite(fraction):
        return str(fraction)
    return f"{fraction:.1%}" if abs(fraction) < 0.0995 else f"{fraction:.0%}"


def duration(seconds: float) -> str:
    """108 → `1m48s`; `0.37s` and `12.0ms` below a second, `2h05m` and `3d07h` above an hour.

    An int is shown in whole seconds: `8s` rather than `8.0s`.
    """
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds == 0:
        return "0s"
    if seconds < 0.09995:
        return f"{seconds * 1000:.1f}ms"
    if seconds < 9.95 and not isinstance(seconds, int):
        return f"{seconds:.2f}s" if seconds < 0.995 else f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def _scale(value: float, prefixes: tuple[str, ...]) -> tuple[float, str]:
    for prefix in prefixes[:-1]:
        if not abs(value) >= 999.5:  # 999.5 would be printed as 1000; written so that nan ends the loop
            return value, prefix
        value /= 1000
    return value, prefixes[-1]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}"
