"""vLLM's servers: of hidden states, and of a trained draft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ._app import app, exit_codes, integers


@app.command()
def launch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Verifier: folder or Hugging Face id.")],
    vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- VLLM_ARGS]...", help="Handed on to `vllm serve`.")
    ] = None,
    layer_ids: Annotated[
        str | None,
        typer.Option(metavar="1,29,57,60", help="Layers (k: after layer k), the last included; default: upstream's."),
    ] = None,
    hidden_states_path: Annotated[
        Path, typer.Option(help="Folder that the server writes to; the client must see it under the same path.")
    ] = Path("hidden_states"),
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the verifier's code.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and stop.")] = False,
) -> None:
    """Start vLLM's server for speculators 0.5 and later; exit 2 if the installed vLLM cannot extract states."""
    with exit_codes():
        from ..server import command

        wanted = None if layer_ids is None else integers("--layer-ids", layer_ids)
        found = command.launch(
            model,
            vllm_args or [],
            layer_ids=wanted,
            hidden_states_path=hidden_states_path,
            trust_remote_code=trust_remote_code,
        )
        for note in found.notes:
            typer.echo(note, err=True)
        typer.echo(found.shell)
        if not dry_run:
            command.start(found.command)


@app.command("check-server")
def check_server(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Verifier: folder or Hugging Face id.")],
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="Prepared rows, with their hidden_states.")],
    hidden_states_path: Annotated[Path | None, typer.Option(help="Folder of the states, where it is another.")] = None,
    layer_ids: Annotated[str | None, typer.Option(metavar="1,29,57,60", help="As given to launch.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many of the first samples.")] = 4,
    tolerance: Annotated[
        float | None, typer.Option(help="Relative error of a row; default: by the states' dtype.")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share the verifier.")] = 1,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="Share of each GPU's memory.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the verifier's code.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a server's first samples with our own extraction; exit 1 and what is wrong if they differ."""
    with exit_codes():
        from ..server import check

        report = check.run_check(
            check.Settings(
                model=model, data=data, states=hidden_states_path,
                layer_ids=None if layer_ids is None else integers("--layer-ids", layer_ids),
                samples=samples, tolerance=tolerance, tensor_parallel_size=tensor_parallel,
                gpu_memory_utilization=gpu_memory_utilization, trust_remote_code=trust_remote_code,
            )
        )  # fmt: skip
        typer.echo(json.dumps(check.as_dict(report), indent=2) if as_json else check.as_text(report))
        raise typer.Exit(1 if report.findings else 0)


@app.command("serve-check")
def serve_check(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="One epoch's folder of a trained draft.")],
    verifier: Annotated[str | None, typer.Option(help="Verifier; default: the one that the draft names.")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help="Conversations or prompt_token_ids; default: the run's held-out rows."),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="At most this many prompts.")] = 32,
    num_speculative_tokens: Annotated[
        int | None, typer.Option(min=1, help="Draft tokens a step; default: what the draft proposes.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest answer in tokens.")] = 128,
    control: Annotated[
        list[str] | None, typer.Option(help="A further head to compare with: shifted (layer ids one off).")
    ] = None,
    plain: Annotated[bool, typer.Option(help="Also serve the verifier alone and compare the answers.")] = True,
    out: Annotated[Path | None, typer.Option(help="Result; default: serve_check.json in the run folder.")] = None,
    dtype: Annotated[str, typer.Option(help="Activation dtype.")] = "auto",
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share the verifier.")] = 1,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="Share of each GPU's memory.")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest prompt and answer together.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the verifier's code.")] = False,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs, no compilation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Serve the draft in vLLM beside an untrained one; exit 1 if its tokens are not clearly accepted more often."""
    with exit_codes():
        from ..serve_check.check import EngineError, Settings, as_text, run_check

        settings = Settings(
            checkpoint=checkpoint, verifier=verifier, prompts=prompts, num_prompts=num_prompts,
            speculative_tokens=num_speculative_tokens, max_tokens=max_tokens, controls=tuple(control or ()),
            compare_plain=plain, out=out, dtype=dtype, tensor_parallel_size=tensor_parallel,
            gpu_memory_utilization=gpu_memory_utilization, max_model_len=max_model_len,
            trust_remote_code=trust_remote_code, enforce_eager=enforce_eager,
        )  # fmt: skip
        try:
            content = run_check(settings)
        except EngineError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None
        typer.echo(json.dumps(content, indent=2) if as_json else as_text(content))
        if not content["verdict"]["trained_above_untrained"]:
            raise typer.Exit(1)
