"""The fields of speculators' bug form, in its order, read without importing torch.

The form: https://github.com/vllm-project/speculators/blob/main/.github/ISSUE_TEMPLATE/100-bug-report.yml
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from .. import versions

__all__ = ["FIELDS", "bug_form", "named"]

#: Label of a field to the module whose version it asks for; None: something else.
FIELDS = {
    "vLLM": "vllm",
    "Speculators": "speculators",
    "CUDA": None,
    "PyTorch": "torch",
    "Transformers": "transformers",
    "Hardware": None,
    "Model": None,
}
DRIVER = Path("/proc/driver/nvidia/version")
ASK_S = 20  # nvidia-smi wakes a sleeping GPU


def bug_form(model: str | None = None) -> dict[str, str]:
    """The form's fields, filled in.

    Args:
        model: The model that the report is about; doctor does not know it.
    """
    filled = {label: named(module) for label, module in FIELDS.items() if module}
    filled |= {"CUDA": _cuda(), "Hardware": _hardware(), "Model": model or "(yours)"}
    return {label: filled[label] for label in FIELDS}


def named(module: str) -> str:
    """Version of what provides a module, and the distribution where it has another name."""
    found = versions.installed(module)
    if found is None:
        return "not installed"
    return found.version + (f" ({found.distribution})" if found.distribution != module else "")


def _cuda() -> str:
    """What PyTorch was built for, and the driver."""
    built = _torch_builds()
    driver = _driver()
    parts = [f"{built['cuda']} (PyTorch's build)"] if built.get("cuda") else []
    parts += [f"ROCm {built['hip']} (PyTorch's build)"] if built.get("hip") else []
    parts += [f"driver {driver}"] if driver else ["no NVIDIA driver"]
    return ", ".join(parts)


def _torch_builds() -> dict[str, str]:
    """``cuda`` and ``hip`` as torch's version file has them; the file is read, not run."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    try:
        tree = ast.parse(file.read_text(encoding="utf-8")) if file else None
    except (OSError, SyntaxError, ValueError):
        return {}
    found = {}
    for node in tree.body if tree else ():
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if targets and isinstance(targets[0], ast.Name) and isinstance(value, ast.Constant):
            found[targets[0].id] = value.value if isinstance(value.value, str) else ""
    return found


def _driver() -> str:
    try:
        match = re.search(r"Kernel Module\D*([\d.]+)", DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return match[1] if match else ""


def _hardware() -> str:
    """Accelerators, then the CPU."""
    return ", ".join([*_accelerators(), f"{os.cpu_count()} x {_cpu()}"])


def _accelerators() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return [] if not Path("/dev/kfd").exists() else ["AMD GPU"]
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ["GPU (nvidia-smi does not answer)"]
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return [f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines)] if done.returncode == 0 else []


def _cpu() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.machine()
