"""Start processes: one in place, several through torch's elastic agent; collect their errors; stop them.

This room knows nothing of training, recipes or models: it calls a named function with a JSON payload.
"""
