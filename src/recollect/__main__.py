"""`python -m recollect`: the same as the `recollect` command."""

from .interfaces.cli import main

if __name__ == "__main__":
    main()
