"""Paddock: the same model, on any device, in any layout, gives the same loss."""

__version__ = "0.1.0"
