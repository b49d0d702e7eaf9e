"""Activates the shim as an interpreter starts, then runs the next ``sitecustomize``.

This folder is put on ``PYTHONPATH`` by ``speculators-compat exec``. Other interpreters that the
script starts inherit the variable and may know nothing of this package: they are left alone.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _activate() -> None:
    try:
        import speculators_compat  # noqa: F401  (importing it activates it)
    except Exception as error:
        if os.environ.get("SPECULATORS_COMPAT_EXEC") != sys.executable:
            return
        # site reports an exception and goes on, and the script would run without the shim.
        sys.stderr.write(f"speculators-compat exec: cannot activate the shim: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)


def _next_sitecustomize() -> None:
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 (pathlib is slow to import here)
    path = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_activate()
_next_sitecustomize()
