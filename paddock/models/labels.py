"""The label of a position that does not count in the loss: torch's own convention."""

IGNORED = -100
