"""`python faulty_command.py VERB …`: `paddock` with the callback that fails on order."""

import faulty  # noqa: F401

from paddock.cli.main import main

if __name__ == "__main__":
    main()
