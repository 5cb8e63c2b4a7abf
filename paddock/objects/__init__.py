"""Objects: what lies in a store that is spoken to over the network, by its address, and its copy on this machine.

A reader is given the path of a copy (`local_path`), and knows nothing of stores. What is written is written here first
and goes to the store behind the work (`paddock/training/remote/run.py`). It must not know what the objects hold.
"""
