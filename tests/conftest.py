"""Settings of the CPU engine, for pytest run by hand; the nox sessions set the same ones."""

import os
from pathlib import Path

ENGINE_ENV = Path(__file__).parents[1] / "tools" / "engine.env"

for _line in ENGINE_ENV.read_text(encoding="utf-8").splitlines():
    if _line and not _line.startswith("#"):
        os.environ.setdefault(*_line.split("=", 1))
