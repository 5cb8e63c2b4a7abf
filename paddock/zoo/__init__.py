"""The zoo of contributed models: a contribution made from a recipe, checked by a machine, and run in a sandbox; a
foreign script whose prints become a unified log; and what is known of the recipes that ship.

A contribution is a folder as Tecorigin's ModelZoo has it. This room reads and runs it, and trusts nothing in it.
"""
