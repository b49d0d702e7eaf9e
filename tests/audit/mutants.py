"""Changed copies of a release: one definition that a call site touches is renamed, moved, or takes something else.

The copies are laid over the sources; nothing is written to disk.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speculators_compat.audit.sources import Source

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Changed(Source):
    """A source with one file replaced, added or gone."""

    def __init__(self, base: Source, files: dict[str, str], gone: str = ""):
        super().__init__(base.package, f"{base.label}, changed", base.version)
        self._base, self._files, self._gone = base, files, gone

    def paths(self):
        return [path for path in {*self._base.paths(), *self._files} if path != self._gone]

    def has(self, path):
        return path != self._gone and (path in self._files or self._base.has(path))

    def read(self, path):
        if path == self._gone:
            return None
        return self._files[path].encode() if path in self._files else self._base.read(path)


@dataclass(frozen=True)
class Mutant:
    """One change: what kind, to what."""

    kind: str
    symbol: str
    detail: str
    source: Changed


# (module, definition, arguments that the call sites of speculators pass by name, and how many by position)
TARGETS = [
    ("vllm.v1.core.sched.scheduler", "Scheduler.__init__", ["vllm_config", "kv_cache_config"], 0),
    ("vllm.v1.core.sched.scheduler", "Scheduler.add_request", [], 1),
    ("vllm.v1.core.sched.scheduler", "Scheduler.schedule", [], 0),
    ("vllm.v1.core.sched.scheduler", "Scheduler.finish_requests", [], 2),
    ("vllm.v1.core.kv_cache_utils", "get_kv_cache_config_from_groups", ["kv_cache_groups", "available_memory"], 0),
    ("vllm.v1.core.kv_cache_utils", "unify_hybrid_kv_cache_specs", [], 1),
    ("vllm.v1.core.kv_cache_utils", "get_request_block_hasher", [], 2),
    ("vllm.v1.request", "Request.__init__", ["request_id", "eos_token_id", "block_hasher"], 0),
    ("vllm.v1.structured_output", "StructuredOutputManager.__init__", ["vllm_config"], 0),
    ("vllm.v1.executor.multiproc_executor", "MultiprocExecutor.__init__", ["vllm_config"], 0),
    ("vllm.v1.executor.multiproc_executor", "MultiprocExecutor.collective_rpc", ["args", "unique_reply_rank"], 1),
    ("vllm.v1.worker.gpu_worker", "Worker.get_kv_cache_spec", [], 0),
    ("vllm.distributed.parallel_state", "get_pp_group", [], 0),
    ("vllm.distributed.parallel_state", "GroupCoordinator.is_first_rank", None, 0),
    ("vllm.model_executor.models.llama", "LlamaModel.embed_input_ids", [], 1),
    ("vllm.model_executor.models.llama", "LlamaDecoderLayer.forward", ["positions", "residual"], 0),
]
FIELDS = [
    (
        "vllm.config.cache",
        "CacheConfig",
        ["gpu_memory_utilization", "enable_prefix_caching"],
        ["cache_dtype", "sliding_window"],
    ),
    ("vllm.config.scheduler", "SchedulerConfig", ["max_num_seqs", "is_encoder_decoder"], ["policy", "stream_interval"]),
    ("vllm.config.parallel", "ParallelConfig", ["tensor_parallel_size", "worker_extension_cls"], ["enable_eplb"]),
    ("vllm.config.model", "ModelConfig", ["trust_remote_code", "enforce_eager"], ["tokenizer_mode"]),
    ("vllm.v1.core.sched.output", "SchedulerOutput", [], []),
    ("vllm.v1.kv_cache_interface", "KVCacheConfig", [], []),
]
ATTRIBUTES = [
    ("vllm.v1.core.sched.output", "SchedulerOutput", "total_num_scheduled_tokens"),
    ("vllm.v1.kv_cache_interface", "KVCacheConfig", "num_blocks"),
    ("vllm.config.cache", "CacheConfig", "num_gpu_blocks"),
    ("vllm.v1.request", "RequestStatus", "FINISHED_ABORTED"),
]


def mutants(api: Source) -> Iterator[Mutant]:
    """Every change to a release."""
    for module, name, keywords, positional in TARGETS:
        yield from _of_function(api, module, name, keywords, positional)
    for module, name, passed, defaulted in FIELDS:
        yield from _of_fields(api, module, name, passed, defaulted)
    for module, name, attribute in ATTRIBUTES:
        yield _change(api, module, name, "rename attribute", attribute, _rename_field(attribute))
    for module in ("vllm.v1.request", "vllm.v1.core.sched.scheduler", "vllm.sequence"):
        path = api.path_of(module)
        moved = Changed(api, {path.replace(".py", "_moved.py"): api.read(path).decode()}, gone=path)
        yield Mutant("move module", module, "", moved)


def _of_function(api: Source, module: str, name: str, keywords: list[str] | None, positional: int) -> Iterator[Mutant]:
    if not name.endswith("__init__"):
        yield _change(api, module, name, "rename", "", _rename)
        yield _change(api, module, name, "drop", "", None)
    if keywords is None:
        return
    yield _change(api, module, name, "new required argument", "", _require)
    for keyword in keywords:
        yield _change(api, module, name, "rename argument", keyword, _rename_argument(keyword))
        yield _change(api, module, name, "drop argument", keyword, _drop_argument(keyword))
    if positional > 1:
        yield _change(api, module, name, "reorder", "", _reorder)


def _of_fields(api: Source, module: str, name: str, passed: list[str], defaulted: list[str]) -> Iterator[Mutant]:
    for field in passed:
        yield _change(api, module, name, "rename field", field, _rename_field(field))
        yield _change(api, module, name, "drop field", field, _drop_field(field))
    if passed:
        yield _change(api, module, name, "new required field", "", _require_field)
    for field in defaulted:
        yield _change(api, module, name, "change default", field, _change_default(field))


def _change(
    api: Source,
    module: str,
    name: str,
    kind: str,
    detail: str,
    change: Callable[[Definition], None] | None,
    replace: Callable[[Definition], list[ast.stmt]] = lambda node: [ast.Pass()],
) -> Mutant:
    """Apply a change to one definition; None puts what ``replace`` gives in its place, nothing by default."""
    path = api.path_of(module)
    tree = ast.parse(api.read(path))
    body, node = tree.body, None
    for part in name.split("."):
        node = next(item for item in reversed(body) if getattr(item, "name", "") == part)
        parent, body = body, node.body
    before = ast.unparse(tree)
    if change is None:
        at = parent.index(node)
        parent[at : at + 1] = replace(node)
    else:
        change(node)
    after = ast.unparse(ast.fix_missing_locations(tree))
    assert after != before, (module, name, kind, detail)
    return Mutant(kind, f"{module}.{name}", detail, Changed(api, {path: after}))


def _rename(node: Definition) -> None:
    node.name += "_renamed"


def _require(node: Definition) -> None:
    node.args.kwonlyargs.append(ast.arg("novel"))
    node.args.kw_defaults.append(None)


def _rename_argument(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        next(item for item in arguments if item.arg == name).arg = f"{name}_renamed"

    return change


def _drop_argument(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        names = [item.arg for item in node.args.args]
        index = names.index(name)
        with_default = index - (len(names) - len(node.args.defaults))
        if with_default >= 0:
            del node.args.defaults[with_default]
        del node.args.args[index]

    return change


def _reorder(node: Definition) -> None:
    first = 1 if node.args.args[0].arg == "self" else 0
    args = node.args.args
    args[first], args[first + 1] = args[first + 1], args[first]


def _field(node: Definition, name: str) -> ast.AnnAssign | ast.Assign:
    for item in node.body:
        target = (
            item.target
            if isinstance(item, ast.AnnAssign)
            else item.targets[0]
            if isinstance(item, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == name:
            return item
    raise LookupError(name)


def _rename_field(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        item = _field(node, name)
        (item.target if isinstance(item, ast.AnnAssign) else item.targets[0]).id = f"{name}_renamed"

    return change


def _drop_field(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        node.body[node.body.index(_field(node, name))] = ast.Pass()

    return change


def _require_field(node: Definition) -> None:
    node.body.insert(0, ast.parse("novel: int").body[0])


def _change_default(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        _field(node, name).value = ast.Constant("changed")

    return change
