"""Further changed copies of a release, of kinds and at places that :mod:`.mutants` does not have; and harmless changes.

Written by somebody who had not written the audit, from the list of what speculators uses.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from speculators_compat.audit.sources import Source

from .mutants import Changed, Definition, Mutant, _change, _field

SCHED, UTILS = "vllm.v1.core.sched.scheduler", "vllm.v1.core.kv_cache_utils"
EXECUTOR, ABSTRACT = "vllm.v1.executor.multiproc_executor", "vllm.v1.executor.abstract"
LLAMA, PARALLEL = "vllm.model_executor.models.llama", "vllm.distributed.parallel_state"
CACHE, VLLM, MODEL = "vllm.config.cache", "vllm.config.vllm", "vllm.config.model"

BY_NAME = [
    (SCHED, "Scheduler.__init__"),
    (UTILS, "get_kv_cache_config_from_groups"),
    ("vllm.v1.request", "Request.__init__"),
    ("vllm.v1.structured_output", "StructuredOutputManager.__init__"),
    (EXECUTOR, "MultiprocExecutor.collective_rpc"),
    (LLAMA, "LlamaDecoderLayer.forward"),
]
BY_POSITION = [
    (SCHED, "Scheduler.add_request"),
    (SCHED, "Scheduler.finish_requests"),
    (UTILS, "unify_hybrid_kv_cache_specs"),
    (UTILS, "_get_kv_cache_groups_uniform_spec"),
    (UTILS, "get_request_block_hasher"),
    (UTILS, "init_none_hash"),
    ("vllm.utils.hashing", "get_hash_fn_by_name"),
    ("vllm.sequence", "IntermediateTensors.__init__"),
    (ABSTRACT, "Executor.initialize_from_config"),
    (EXECUTOR, "MultiprocExecutor.execute_model"),
    (EXECUTOR, "MultiprocExecutor.sample_tokens"),
    (EXECUTOR, "MultiprocExecutor.collective_rpc"),
    (LLAMA, "LlamaModel.embed_input_ids"),
]
IMPORTED = [
    (UTILS, "init_none_hash"),
    (UTILS, "get_request_block_hasher"),
    ("vllm.utils.hashing", "get_hash_fn_by_name"),
    ("vllm.v1.request", "RequestStatus"),
    (PARALLEL, "get_tp_group"),
    ("vllm.sampling_params", "SamplingParams"),
    (EXECUTOR, "MultiprocExecutor"),
]
CONFIGS = [
    "CacheConfig",
    "DeviceConfig",
    "LoadConfig",
    "ModelConfig",
    "ParallelConfig",
    "SchedulerConfig",
    "VllmConfig",
]
NOT_TAKEN = [
    (CACHE, "CacheConfig", "block_size"),
    ("vllm.config.scheduler", "SchedulerConfig", "max_num_batched_tokens"),
    ("vllm.config.parallel", "ParallelConfig", "tensor_parallel_size"),
    (MODEL, "ModelConfig", "tokenizer"),
    (VLLM, "VllmConfig", "load_config"),
]
NOT_KEPT = [(CACHE, "CacheConfig", "prefix_caching_hash_algo")]
OF_SELF = [
    (LLAMA, "LlamaModel", "norm"),
    (LLAMA, "LlamaModel", "layers"),
    (LLAMA, "LlamaModel", "end_layer"),
    (LLAMA, "LlamaForCausalLM", "model"),
    (PARALLEL, "GroupCoordinator", "rank_in_group"),
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "input_batch"),
    ("vllm.v1.worker.gpu_input_batch", "InputBatch", "req_id_to_index"),
]
DROPPED = [
    (PARALLEL, "GroupCoordinator.is_last_rank"),
    (EXECUTOR, "MultiprocExecutor.sample_tokens"),
    (ABSTRACT, "Executor.initialize_from_config"),
    ("vllm.model_executor.models.interfaces", "SupportsMultiModal.get_language_model"),
]
GONE = [
    "vllm.utils.hashing",
    "vllm.sampling_params",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.structured_output",
]
NEEDS_MORE = [
    ("vllm.config.device", "DeviceConfig"),
    ("vllm.config.load", "LoadConfig"),
    (VLLM, "VllmConfig"),
    ("vllm.sampling_params", "SamplingParams"),
]
DEFAULTS = [
    (SCHED, "Scheduler.__init__", "log_stats"),
    ("vllm.v1.request", "Request.__init__", "priority"),
    (EXECUTOR, "MultiprocExecutor.collective_rpc", "timeout"),
]


def attacks(api: Source) -> Iterator[Mutant]:
    """Every change that breaks, or silently alters, a call site."""
    for place in BY_NAME:
        yield _change(api, *place, "positional-only", "", _positional_only)
    for place in BY_POSITION:
        yield _change(api, *place, "keyword-only", "", _keyword_only)
        yield _change(api, *place, "one parameter fewer", "", _fewer)
    for place in IMPORTED:
        yield _change(api, *place, "seen by type checkers alone", "", None, _hide)
    for name in CONFIGS:
        yield _without_export(api, "vllm.config", name)
    for module, name, field in NOT_TAKEN:
        yield _change(api, module, name, "init=False", field, _valued(field, "field(init=False)"))
    for module, name, field in NOT_KEPT:
        yield _change(api, module, name, "InitVar", field, _init_var(field))
    for module, name, attribute in OF_SELF:
        yield _change(api, module, name, "self attribute renamed", attribute, _renamed_self(attribute))
    for place in DROPPED:
        yield _change(api, *place, "method dropped", "", None)
    for module in GONE:
        yield Mutant("module gone", module, "", Changed(api, {}, gone=api.path_of(module)))
    for place in NEEDS_MORE:
        yield _change(api, *place, "required field", "", lambda node: node.body.insert(0, _statement("novel: int")))
    for module, name, argument in DEFAULTS:
        yield _change(api, module, name, "changed default", argument, _default(argument))
    yield _change(api, "vllm.v1.request", "RequestStatus", "member dropped", "", _without("FINISHED_ABORTED"))
    yield _change(api, EXECUTOR, "MultiprocExecutor", "base dropped", "", lambda node: node.bases.clear())
    yield _change(api, EXECUTOR, "MultiprocExecutor.execute_model", "abstract", "", _abstract)
    for worker in ("vllm.v1.worker.gpu_worker", "vllm.v1.worker.worker_base"):
        name = "Worker" if worker.endswith("gpu_worker") else "WorkerBase"
        yield _change(api, worker, name, "name taken", "", lambda node: node.body.append(_statement(TAKEN)))
    yield _change(api, SCHED, "Scheduler.schedule", "coroutine", "", None, _coroutine)
    yield _change(api, UTILS, "get_request_block_hasher", "coroutine", "", None, _coroutine)


TAKEN = "def _setup_hidden_states_capture(self): ..."


def harmless(api: Source) -> Iterator[Mutant]:
    """Changes that no call site of speculators notices."""
    for module, name in BY_NAME[:4]:
        yield _change(api, module, name, "optional argument", "", _optional)
        yield _change(api, module, name, "takes any keyword", "", _any_keyword)
    for module, name in IMPORTED:
        yield _change(api, module, name, "kept under its old name", "", None, _aliased)
        yield _change(api, module, name, "defined in a try", "", None, _in_try)
        yield _moved_and_exported(api, module, name)
    yield _change(
        api, CACHE, "CacheConfig", "optional field", "", lambda node: node.body.append(_statement("novel: int = 0"))
    )
    yield _change(
        api,
        "vllm.v1.request",
        "RequestStatus",
        "new member",
        "",
        lambda node: node.body.append(_statement("NOVEL = 99")),
    )


def _statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _receiver(node: ast.FunctionDef) -> int:
    return 1 if node.args.args and node.args.args[0].arg in ("self", "cls") else 0


def _positional_only(node: ast.FunctionDef) -> None:
    node.args.posonlyargs, node.args.args = node.args.args, []


def _keyword_only(node: ast.FunctionDef) -> None:
    first, arguments = _receiver(node), node.args
    moved, without = arguments.args[first:], len(arguments.args[first:]) - len(arguments.defaults)
    arguments.kw_defaults = [*([None] * without), *arguments.defaults, *arguments.kw_defaults]
    arguments.kwonlyargs = [*moved, *arguments.kwonlyargs]
    arguments.args, arguments.defaults, arguments.vararg = arguments.args[:first], [], None


def _fewer(node: ast.FunctionDef) -> None:
    """Only as many parameters as one call by position is too many for."""
    first = _receiver(node)
    node.args.args, node.args.defaults = node.args.args[:first], []


def _hide(node: Definition) -> list[ast.stmt]:
    hidden = ast.If(ast.Name("TYPE_CHECKING", ast.Load()), [node], [])
    return [_statement("from typing import TYPE_CHECKING"), hidden]


def _aliased(node: Definition) -> list[ast.stmt]:
    old, node.name = node.name, f"{node.name}Novel"
    return [node, _statement(f"{old} = {node.name}")]


def _in_try(node: Definition) -> list[ast.stmt]:
    handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, [ast.Pass()])
    return [ast.Try([node], [handler], [], [])]


def _coroutine(node: ast.FunctionDef) -> list[ast.stmt]:
    fields = {name: getattr(node, name) for name in ("name", "args", "body", "decorator_list", "returns")}
    return [ast.AsyncFunctionDef(**fields, type_params=[])]


def _optional(node: ast.FunctionDef) -> None:
    node.args.kwonlyargs.append(ast.arg("novel"))
    node.args.kw_defaults.append(ast.Constant(None))


def _any_keyword(node: ast.FunctionDef) -> None:
    node.args.kwarg = ast.arg("novel")


def _valued(name: str, text: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        _field(node, name).value = ast.parse(text, mode="eval").body

    return change


def _init_var(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        item = _field(node, name)
        item.annotation = ast.Subscript(ast.Name("InitVar", ast.Load()), item.annotation, ast.Load())
        item.value = None

    return change


def _renamed_self(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        for item in ast.walk(node):
            if isinstance(item, ast.Attribute) and item.attr == name:
                item.attr = f"{name}_renamed"
            elif isinstance(item, ast.AnnAssign) and getattr(item.target, "id", "") == name:
                item.target.id = f"{name}_renamed"

    return change


def _without(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        node.body.remove(_field(node, name))

    return change


def _default(name: str) -> Callable[[Definition], None]:
    def change(node: Definition) -> None:
        position = [item.arg for item in node.args.args].index(name) - len(node.args.args)
        node.args.defaults[position] = ast.Constant("changed")

    return change


def _abstract(node: ast.FunctionDef) -> None:
    node.body = [_statement("raise NotImplementedError")]


def _without_export(api: Source, module: str, name: str) -> Mutant:
    """The package no longer imports the name; its home has it still."""
    path = api.path_of(module)
    tree = ast.parse(api.read(path))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            node.names = [alias for alias in node.names if alias.name != name] or [ast.alias("annotations")]
    return Mutant("no longer exported", module, name, Changed(api, {path: ast.unparse(tree)}))


def _moved_and_exported(api: Source, module: str, name: str) -> Mutant:
    """The whole module lives elsewhere, and its old one imports the name from there."""
    path = api.path_of(module)
    new = path.replace(".py", "_moved.py")
    text = f"from {module}_moved import *\nfrom {module}_moved import {name}\n"
    return Mutant("moved and exported", module, name, Changed(api, {new: api.read(path).decode(), path: text}))
