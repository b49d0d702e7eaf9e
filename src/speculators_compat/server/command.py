"""Builds the command of a vLLM server that extracts hidden states, or says why the installed release cannot.

The server is what speculators' own client expects (``data_generation/vllm_client.py``, and the file backend of
``hs_connectors``): the connector ``ExampleHiddenStatesConnector`` as producer, writing into a folder that the client
sees under the same path, and a verifier without a draft.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .. import versions
from ..drift import UsageError
from ..layers import ascend_to_last, from_vllm_layer_ids, to_vllm_layer_ids
from ..pipeline.verifier import read_config
from ..verifier import text_config, text_fields
from .arguments import Arguments
from .facts import LIMITS, SETTINGS, WARNINGS, Setup

__all__ = ["Launch", "Verifier", "build", "launch", "read_verifier", "server_layer_ids", "start"]

#: What the command sets itself: a second value would undo it.
OURS = ("speculative-config", "kv-transfer-config", "spec-method", "spec-model", "spec-tokens", "model")


@dataclass(frozen=True)
class Verifier:
    """What of a verifier's config the command depends on.

    Attributes:
        name: Folder or Hugging Face id.
        model_type: Of its language model.
        num_layers: Its decoder layers.
    """

    name: str
    model_type: str
    num_layers: int


@dataclass(frozen=True)
class Launch:
    """A server's command.

    Attributes:
        command: The words, the program first.
        layer_ids: Layers in the convention of speculators 0.3 and 0.4: k is the state after layer k.
        notes: What the reader should know, one sentence or two each.
    """

    command: list[str]
    layer_ids: list[int]
    notes: list[str]

    @property
    def shell(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.command)


def read_verifier(name: str) -> Verifier:
    """Read a verifier's config; no code of the checkpoint runs.

    Args:
        name: Folder or Hugging Face id.

    Raises:
        UsageError: There is none, it cannot be read, or it does not say how many decoder layers there are.
    """
    raw = read_config(name)
    fields = text_fields(raw)
    if "num_hidden_layers" not in fields:
        # Left to its class's default.
        loaded = text_config(name)
        fields = {key: getattr(loaded, key, None) for key in ("model_type", "num_hidden_layers")}
    if not isinstance(fields["num_hidden_layers"], int):
        raise UsageError("The verifier's config.json must state num_hidden_layers.", name, "Add it there.")
    return Verifier(name, str(fields.get("model_type") or raw.get("model_type") or ""), fields["num_hidden_layers"])


def server_layer_ids(num_layers: int, layer_ids: Sequence[int] | None = None) -> list[int]:
    """The layers that the server extracts.

    Args:
        num_layers: Decoder layers of the verifier.
        layer_ids: In the convention of speculators 0.3 and 0.4 (k: after layer k); None for the rule of upstream's own
            ``scripts/launch_vllm.py``, which the trainers of 0.5 and later take by default. Its ids are vLLM's
            (2, N // 2, N - 3, N), so the generator's rule of the same look is one layer later.

    Returns:
        Ids in the convention of speculators 0.3 and 0.4, ascending, the last layer last.

    Raises:
        UsageError: Not ascending, out of range, or without the last layer: vLLM sorts them, and the trainer takes the
            last state for the verifier's output.
    """
    ids = [1, num_layers // 2 - 1, num_layers - 4, num_layers - 1] if layer_ids is None else list(layer_ids)
    if ascend_to_last(ids, num_layers):
        return ids
    raise UsageError(
        f"Layers must be ascending and end with the last layer, {num_layers - 1} (k: the state after layer k).",
        f"{ids} for a verifier with {num_layers} layers",
        "Set --layer-ids; upstream's rule needs 7 layers or more.",
    )


def build(
    verifier: Verifier, setup: Setup, hidden_states_path: str, program: str = "vllm", trust_remote_code: bool = False
) -> Launch:
    """The command for a setup.

    Args:
        verifier: The verifier.
        setup: What is installed and asked for.
        hidden_states_path: Folder that the server writes to, as the server and the client see it.
        program: The ``vllm`` command.
        trust_remote_code: Whether the verifier's own code may run in the server.

    Raises:
        UsageError: This release cannot, or the user's arguments contradict what it needs.
    """
    name = f"vLLM {setup.version}"
    for limit in LIMITS:
        if limit.holds(setup):
            what = f"{name} {limit.found} ({verifier.name}: {setup.model_type})"
            raise UsageError(limit.required, what, f"{limit.way_out} See {limit.upstream}")
    for option in OURS:
        if setup.arguments.has(option):
            raise UsageError(
                f"The command sets --{option} itself.", f"--{option} after --", "Leave it out, or call vllm yourself."
            )
    layer_ids = from_vllm_layer_ids(setup.vllm_layer_ids)
    return Launch(
        command=[
            program,
            "serve",
            verifier.name,
            "--speculative-config",
            json.dumps(_speculative_config(setup.vllm_layer_ids)),
            "--kv-transfer-config",
            json.dumps(_kv_transfer_config(hidden_states_path)),
            *_switched_off(setup),
            *(["--trust-remote-code"] if trust_remote_code and not setup.arguments.has("trust-remote-code") else []),
            *setup.arguments.words,
        ],
        layer_ids=layer_ids,
        notes=[
            f"States after layers {layer_ids}, in vLLM's convention {list(setup.vllm_layer_ids)}.",
            *(warning.text for warning in WARNINGS if warning.holds(setup)),
        ],
    )


def _speculative_config(vllm_layer_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(vllm_layer_ids)}},
    }


def _kv_transfer_config(hidden_states_path: str) -> dict[str, Any]:
    return {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": hidden_states_path},
    }


def _switched_off(setup: Setup) -> list[str]:
    """What this release needs off, unless the user says so too."""
    words = []
    for setting in SETTINGS:
        if not setup.within(setting.since, setting.until):
            continue
        chosen = setup.arguments.switch(setting.name)
        if chosen:
            raise UsageError(
                f"vLLM before {setting.until} extracts with --no-{setting.name}: {setting.why}.",
                f"--{setting.name} after --, and vLLM {setup.version}",
                f"Leave it out, or install vLLM {setting.until} or later. See {setting.upstream}",
            )
        if chosen is None:
            words.append(f"--no-{setting.name}")
    return words


def launch(
    model: str,
    arguments: Sequence[str],
    *,
    layer_ids: Sequence[int] | None = None,
    hidden_states_path: Path,
    trust_remote_code: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Launch:
    """The command of a server here: for the installed vLLM and the environment of this process.

    Args:
        model: Verifier, folder or Hugging Face id.
        arguments: What the user gives to ``vllm serve``.
        layer_ids: See :func:`server_layer_ids`.
        hidden_states_path: Folder that the server writes to; the command carries it as an absolute path.
        trust_remote_code: Whether the verifier's own code may run in the server.
        environment: Variables of the server; this process's own by default.

    Raises:
        UsageError: vLLM is not installed, cannot do it, or the arguments do not fit.
    """
    engine = versions.installed("vllm")
    if engine is None:
        raise UsageError("A server needs vLLM.", "it is not installed", "Install vLLM in this environment.")
    if versions.release(engine.version) == "unknown":
        raise UsageError(
            "vLLM's release number decides the command.", f"version {engine.version!r}", "Install a release."
        )
    verifier = read_verifier(model)
    wanted = server_layer_ids(verifier.num_layers, layer_ids)
    ours = versions.installed("speculators")
    setup = Setup(
        version=engine.version,
        model_type=verifier.model_type,
        vllm_layer_ids=to_vllm_layer_ids(wanted),
        cpu=_is_cpu_build(engine),
        arguments=Arguments(tuple(arguments)),
        environment=os.environ if environment is None else environment,
        speculators=ours.version if ours else None,
        own_layers=layer_ids is not None,
    )
    return build(verifier, setup, str(hidden_states_path.absolute()), _program(), trust_remote_code)


def _is_cpu_build(engine: versions.Installed) -> bool:
    local = engine.parsed.local if engine.parsed else None
    return engine.distribution.endswith("-cpu") or bool(local and local.startswith("cpu"))


def _program() -> str:
    """The ``vllm`` command of this environment, activated or not."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("vllm", path=path)
    if found is None:
        raise UsageError("The command `vllm` starts the server.", "none in this environment", "Install vLLM with pip.")
    return found


def start(command: Sequence[str]) -> NoReturn:
    """Replace this process by the server."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))  # noqa: S606 (replaces this process on purpose)
