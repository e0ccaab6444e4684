"""Compute missing vectors: `memorist index` under the name that one of the specifications requires.

python memory/index_embeddings.py [--dry-run] [--batch-size 32] [--force] [--stats]
"""

import sys

from memorist.interfaces.cli import app

if __name__ == "__main__":
    app(["index", *sys.argv[1:]], prog_name="index_embeddings.py")
