"""What people see of a run on standard error: cards, live lines or plain ones, and words while a step takes long."""
