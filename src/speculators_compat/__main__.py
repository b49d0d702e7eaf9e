"""``python -m speculators_compat`` is ``speculators-compat``."""

from .cli import main

if __name__ == "__main__":
    main()
