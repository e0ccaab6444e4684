"""`python -m memorist`: the same as the `memorist` command."""

from .interfaces.cli import main

if __name__ == "__main__":
    main()
