"""What must not be handed in: paths of one machine, calls of a debugger, secrets, and failures that go unnoticed.

Found in the text of files alone; nothing of them is run.
"""

from paddock.zoo.lint.hygiene.check import CHECK, check_hygiene

__all__ = ["CHECK", "check_hygiene"]
