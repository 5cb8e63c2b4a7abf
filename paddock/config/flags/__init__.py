"""Flags of other systems: what each means here, in tables by system, and translating them before anything is parsed."""
