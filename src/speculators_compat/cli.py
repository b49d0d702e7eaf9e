"""The command line: arguments and exit codes only.

0 done, 1 failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .drift import DriftError, UsageError

__all__ = ["app", "main"]

app = typer.Typer(
    help="speculators' hidden-state extraction and EAGLE-3 training on the installed vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# What vLLM and speculators bring: where one is missing, the wrong environment is active.
NEEDED = ("datasets", "speculators", "torch", "transformers", "vllm")
DOCTOR = "`speculators-compat doctor` shows what is installed."

ROWS_HELP = "Prepared rows, where they are neither in the folder nor in prepared/rows beside it."

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="Configuration; docs/pipeline.md lists it.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"speculators-compat {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of ``speculators-compat`` and ``python -m speculators_compat``."""
    app(prog_name="speculators-compat")


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn what went wrong into one message and an exit code."""
    from .pipeline.run import StepError

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        yield
    except UsageError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        typer.echo(
            f"Error: This needs vLLM and speculators beside it. Found: no {error.name} in this environment. {DOCTOR}",
            err=True,
        )
        raise typer.Exit(2) from None
    except StepError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(error.code if error.code in (2, 130) else 1) from None
    except DriftError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None


def _show(summary: dict[str, Any]) -> None:
    from rich.console import Console

    from .pipeline.summary import as_table

    Console().print(as_table(summary))


def _step(name: str, config: Path) -> None:
    with _exit_codes():
        from .pipeline.run import run_step

        run_step(name, config)


@app.command()
def pipeline(config: ConfigPath) -> None:
    """Run all steps: prepare, extract, vocab, train."""
    with _exit_codes():
        from .pipeline.run import run_pipeline

        _show(run_pipeline(config))


@app.command()
def prepare(config: ConfigPath) -> None:
    """Step 1: conversations into token ids and loss masks."""
    _step("prepare", config)


@app.command()
def extract(
    config: ConfigPath,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Part I of N, counted from 0: one engine of several on the same folder."),
    ] = None,
    ray: Annotated[int | None, typer.Option(metavar="N", min=1, help="N engines under Ray (extra `ray`).")] = None,
) -> None:
    """Step 2: hidden states of the verifier, one file per sample."""
    with _exit_codes():
        from .pipeline import on_ray
        from .pipeline.run import run_step
        from .shard import Shard

        if ray is not None and shard is not None:
            raise UsageError("--shard is one part, --ray starts all of them.", "both", "Leave one out.")
        if ray is not None:
            on_ray.extract(config, ray)
            return
        run_step("extract", config, **({} if shard is None else {"shard": Shard.parse(shard)}))


@app.command()
def vocab(config: ConfigPath) -> None:
    """Step 3: the draft's vocabulary."""
    _step("vocab", config)


@app.command()
def train(config: ConfigPath) -> None:
    """Step 4: the EAGLE-3 draft."""
    _step("train", config)


@app.command()
def plan(
    config: ConfigPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, sizes in bytes.")] = False,
) -> None:
    """Show what a run needs before it starts; exit 2 if its disk cannot hold it."""
    with _exit_codes():
        from rich.console import Console

        from .pipeline.config import load_config
        from .pipeline.plan import as_renderable, check, make_plan

        found = make_plan(load_config(config))
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=2))
        else:
            Console().print(as_renderable(found))
        check(found)


@app.command("report")
def report_(config: ConfigPath) -> None:
    """Write report.html and the pictures of a run, as the pipeline does at its end."""
    with _exit_codes():
        from .pipeline.config import load_config
        from .pipeline.page import write_report

        typer.echo(write_report(load_config(config)))


@app.command(
    "exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="",
)
def exec_(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT | -m MODULE [ARGS]...", help="As after `python`."),
    ] = None,
) -> None:
    """Run a script or module, unmodified, under the shim; processes that it starts included."""
    with _exit_codes():
        from .execute import execute

        execute(arguments or [])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the demo: new, or of a demo to go on with.")] = Path(
        "speculators-compat-demo"
    ),
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Ranks that share the verifier: 1, 2, 4 or 8.")] = 1,
    layers: Annotated[int, typer.Option(min=2, help="Decoder layers of the tiny verifier, 7 or more.")] = 8,
    model: Annotated[str, typer.Option(help="Kind of the tiny verifier: kimi_k25, llama, qwen3, ...")] = "kimi_k25",
) -> None:
    """Make a tiny verifier (a Kimi-K2.5) and conversations, and run the pipeline on them."""
    with _exit_codes():
        from .demo import run_demo

        _show(run_demo(out, tensor_parallel, layers, model))


@app.command()
def install(
    what: Annotated[str, typer.Argument(metavar="SPECULATORS", help="One release: speculators==0.4.0.1.")],
) -> None:
    """Install speculators beside the vLLM that is here, whatever bounds it declares; nothing installed moves."""
    with _exit_codes():
        from .install import install as add

        for line in add(what):
            typer.echo(line)


@app.command("export")
def export_(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Extracted samples of either form.")],
    target: Annotated[Path, typer.Argument(metavar="NEW_FOLDER", help="Folder to make.")],
    rows: Annotated[Path | None, typer.Option(help=ROWS_HELP)] = None,
) -> None:
    """Write extracted samples in the form that the trainers of speculators 0.5 and later read."""
    with _exit_codes():
        from .exchange import export

        typer.echo(f"{export(source, target, rows)} samples in {target}")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Prepared rows with their hidden_states.")],
    target: Annotated[Path, typer.Argument(metavar="NEW_FOLDER", help="Folder to make.")],
    model: Annotated[str | None, typer.Option(help="Verifier, where the folder does not say it.")] = None,
    vllm_layer_ids: Annotated[
        str | None, typer.Option(metavar="2,30,58,61", help="Layers, where the folder does not say them.")
    ] = None,
    rows: Annotated[Path | None, typer.Option(help=ROWS_HELP)] = None,
) -> None:
    """Write samples of speculators 0.5 and later as data_<i>.pt, which 0.3 and 0.4 train on."""
    with _exit_codes():
        from .exchange import import_ as convert

        layers = None if vllm_layer_ids is None else _integers("--vllm-layer-ids", vllm_layer_ids)
        typer.echo(f"{convert(source, target, model, layers, rows)} samples in {target}")


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes whole numbers with commas between.", text, "Say 2,30,58,61.") from None


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
    with _exit_codes():
        from .server import command

        wanted = None if layer_ids is None else _integers("--layer-ids", layer_ids)
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
    with _exit_codes():
        from .server import check

        report = check.run_check(
            check.Settings(
                model=model, data=data, states=hidden_states_path,
                layer_ids=None if layer_ids is None else _integers("--layer-ids", layer_ids),
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
    with _exit_codes():
        from .serve_check.check import EngineError, Settings, as_text, run_check

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


@app.command()
def audit(
    code: Annotated[
        str,
        typer.Argument(metavar="[CODE]", help="speculators as a release, wheel or folder, or a script of your own."),
    ] = "installed",
    vllm: Annotated[
        list[str] | None, typer.Option(help="Release, wheel or folder; default: the installed one. May be repeated.")
    ] = None,
    diff: Annotated[
        tuple[str, str] | None, typer.Option(metavar="OLD NEW", help="Show what changed between two releases instead.")
    ] = None,
    written_for: Annotated[
        str | None, typer.Option(help="The vLLM that CODE was written for: shows reordered arguments and defaults.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model class that is served, as llama:LlamaForCausalLM. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0 for code scanning.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for notes too.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Hold every call site against vLLM's sources, importing neither; exit 1 if something is unmended."""
    with _exit_codes():
        from .audit.command import Request, run

        chosen = [name for name, on in (("json", as_json), ("markdown", markdown), ("sarif", sarif)) if on]
        if len(chosen) > 1:
            raise UsageError("One output format.", " and ".join(f"--{name}" for name in chosen), "Choose one.")
        code_ = run(
            Request(
                code, tuple(vllm or ()), diff, written_for, tuple(model or ()), (chosen or ["text"])[0], strict, out
            )
        )
        raise typer.Exit(code_)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; docs/doctor.md lists its fields.")] = False,
    load: Annotated[
        bool, typer.Option(help="Import speculators' modules, so that drifts are settled; without: a quick look.")
    ] = True,
    workers: Annotated[
        bool, typer.Option("--workers", help="Start a worker on a tiny model and show what it reports of itself.")
    ] = False,
) -> None:
    """Show what is installed, every drift, hazards, and what to do next; exit 0 ready, 1 not ready, 2 cannot tell."""
    with _exit_codes():
        from rich.console import Console

        from .doctor import facts, output, verdict

        found = facts.collect(load, workers)
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            Console().print(output.as_renderable(found))
        raise typer.Exit(verdict.EXIT_CODES[found["verdict"]])
