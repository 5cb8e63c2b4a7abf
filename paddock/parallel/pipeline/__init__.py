"""Pipelines: a model cut into stages, the schedules they work by, and the parameters that several of them hold."""
