"""`python -m paddock`, the same as the `paddock` command (and what torchrun starts)."""

from paddock.cli.main import main

if __name__ == "__main__":
    main()
