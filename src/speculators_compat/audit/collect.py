"""Holds each use of the API against the API's sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .binding import Call, Problem, problems, read_call
from .findings import Finding, Severity, Site, Use
from .names import MISSING
from .program import Program
from .scopes import Scope, WalkScope, every_node, parameters_of
from .signature import Signature
from .sources import Source
from .uses import Uses, close, is_abstract
from .values import (
    NONE,
    Atom,
    Class,
    ClassObject,
    External,
    Function,
    FunctionObject,
    Instance,
    Mapping,
    Partial,
    Text,
    Value,
)
from .values import Sequence as SequenceAtom

__all__ = ["Collector", "collect"]

# Enough for what one function hands to the next to settle.
PASSES = 3
RPC_METHODS = {"collective_rpc"}
# Keywords whose string names a class of the code under audit, which the API mixes into a class of its own.
MIXIN_KEYWORDS = {"worker_extension_cls"}
# Where the API names the classes that its workers are, by dotted string.
WORKER_STRINGS = "worker"


@dataclass
class Collected:
    """Everything one walk found.

    Attributes:
        collector: The inference, for further questions.
        uses: Each use that could be followed.
        findings: Each mismatch, without drifts.
        external: Calls of other packages: dotted name, site, keywords, source text.
    """

    collector: Collector
    uses: list[Use]
    findings: list[Finding]
    external: list[tuple[str, Site, Call]]


def collect(caller: Source, api: Source, modules: Iterable[str], models: Sequence[str]) -> Collected:
    """Walk the code under audit.

    Args:
        caller: The code under audit.
        api: The package that it uses.
        modules: Modules of the caller to walk.
        models: Model classes of the API that stand for a loaded model.

    Returns:
        What it uses and what does not fit.

    Raises:
        UsageError: A source cannot be read.
    """
    collector = Collector(Program([api, caller]), models=tuple(models))
    collector.caller, collector.api = caller, api
    collector.find_workers()
    names = sorted(modules)
    for number in range(PASSES):
        collector.begin(last=number == PASSES - 1)
        for name in names:
            module = collector.program.module(name)
            if module is not None:
                collector.walk_module(module)
    return Collected(collector, collector.uses(), collector.found(), list(collector.external.values()))


class Collector(Uses):
    """The auditor of one pair."""

    def find_workers(self) -> None:
        """The API's worker classes, by the dotted strings in which its platforms name them."""
        names = set()
        for module_name in (f"{self.api.package}.platforms.cuda", f"{self.api.package}.platforms.cpu"):
            module = self.program.module(module_name)
            for node in ast.walk(module.tree) if module is not None else ():
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
                if text.startswith(f"{self.api.package}.") and WORKER_STRINGS in text and text.count(" ") == 0:
                    names.add(text)
        found = [atom for name in sorted(names) for atom in self.from_import(*name.rsplit(".", 1))]
        self._workers = tuple(atom.cls for atom in found if isinstance(atom, ClassObject))

    # Calls

    def saw_call(
        self,
        node: ast.Call,
        callee: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        result: Value,
        scope: Scope,
    ) -> Value:
        """See :class:`Walker`."""
        if not scope.audited:
            return result
        call = read_call(node, self._expanded(node, scope))
        for keyword in node.keywords:
            if keyword.arg in MIXIN_KEYWORDS:
                self._mixin(keyword.value, keywords[keyword.arg], scope)
        self._inner_call(callee, node, arguments, keywords)
        self._built |= {atom.cls for atom in callee if isinstance(atom, ClassObject)}
        self._check_call(node, call, callee, scope)
        self._check_getattr(node, callee, arguments, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in RPC_METHODS:
            self._rpc(node, callee, arguments, keywords, scope)
        for atom in callee:
            if isinstance(atom, External):
                site = self._site(node, scope)
                self.external[(site.line, site.column, site.path)] = (atom.name, site, call)
        return result

    def _expanded(self, node: ast.Call, scope: Scope) -> dict[str, frozenset[str] | None]:
        found: dict[str, frozenset[str] | None] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                value = self.evaluate(keyword.value, scope)
                keys = [atom.keys if isinstance(atom, Mapping) else None for atom in value]
                whole = len(keys) == 1
                found[self.text(keyword.value)] = keys[0] if whole else None
        return found

    def _check_call(self, node: ast.Call, call: Call, callee: Value, scope: Scope) -> None:
        judged: list[tuple[Atom, Signature, list[Problem]]] = []
        unsure = False
        for atom in callee:
            if atom is NONE:
                continue
            signature = self.signatures.of(atom) if self._of_api(atom) else None
            if signature is None or not self._is_api(signature.symbol):
                unsure = True
                continue
            judged.append((atom, signature, list(problems(call, signature))))
            self._use_call(node, call, signature, scope)
        bad = [item for item in judged if item[2]]
        tagged = [item for item in bad if _tag(item[0])]
        certain = bad if bad and len(bad) == len(judged) and not unsure else tagged
        if certain and not self.tolerates("TypeError"):
            tags = tuple(sorted({_tag(item[0]) for item in certain} - {""}))
            # A set's order is another in each process.
            _, signature, found = min(certain, key=lambda item: item[1].symbol)
            written = {keyword.arg: keyword for keyword in node.keywords}
            for problem in found if self._concludes else ():
                self._report_call(written.get(problem.name, node), call, signature, problem, tags, scope)

    def _use_call(self, node: ast.Call, call: Call, signature: Signature, scope: Scope) -> None:
        if not self._concludes:
            return
        self._use(
            Use(
                "call", self._site(node, scope), self.text(node.func), signature.symbol, signature, call,
                self._is_subscripted(node, scope),
            )
        )  # fmt: skip

    def _report_call(
        self, place: ast.AST, call: Call, signature: Signature, problem: Problem, tags: tuple[str, ...], scope: Scope
    ) -> None:
        """Report at ``place``: the argument itself where it is written, else the call."""
        callable_name = signature.symbol.removesuffix(".__init__").rpartition(".")[2]
        passed = {
            "missing-argument": f"calls {callable_name} without {problem.name}",
            "too-many-arguments": f"passes {problem.name} arguments by position",
            "repeated-argument": f"passes {problem.name} twice, by position and by name",
        }.get(problem.kind, f"passes {problem.name}=")
        wanted = {
            "missing-argument": f"{problem.name} is required",
            "ignored-argument": f"{problem.name} is not a field, and dropped without a word",
        }.get(problem.kind, f"takes {signature.text()}")
        severity = Severity.SILENT if problem.kind == "ignored-argument" else self._when(scope)
        hint = self._renamed_argument(call, signature, problem)
        self._report(
            Finding(
                problem.kind, signature.symbol, problem.name, self._site(place, scope), passed, wanted,
                severity, hint, tags,
            )
        )  # fmt: skip

    @staticmethod
    def _renamed_argument(call: Call, signature: Signature, problem: Problem) -> str:
        if problem.kind not in ("unexpected-argument", "ignored-argument"):
            return ""
        free = [p.name for p in signature.parameters if p.name not in call.keywords]
        near = close(problem.name, free)
        return f"renamed to {near}?" if near else ""

    def _check_getattr(self, node: ast.Call, callee: Value, arguments: list[Value], scope: Scope) -> None:
        """``getattr(x, "name")`` without a default is an attribute."""
        if External("builtins.getattr") in callee and len(node.args) == 2 and len(arguments) == 2:
            for atom in arguments[1]:
                if isinstance(atom, Text):
                    self._read.add(atom.text)
                    self._check_attribute(node, atom.text, arguments[0], scope)

    def _inner_call(self, callee: Value, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> None:
        """A call inside the code under audit: what it passes is what the parameters are."""
        if External("types.MethodType") in callee and len(arguments) == 2:
            self._bind_method(arguments[0], arguments[1])
        for atom in callee:
            target: Atom | None = atom
            if isinstance(atom, ClassObject) and not self._is_api(atom.cls.module.name):
                found = self.members.attribute(Instance(atom.cls), "__init__") or frozenset()
                target = next((item for item in found if isinstance(item, FunctionObject)), None)
            if isinstance(target, Partial):
                target = None
            if isinstance(target, FunctionObject) and not self._is_api(target.function.module.name):
                self._edges.setdefault(self.current, set()).add(target.function)
                skip = 1 if target.bound is not None else 0
                self._pass(target.function, skip, node, arguments, keywords)

    def _bind_method(self, functions: Value, receiver: Value) -> None:
        """``MethodType(function, object)``: the function's first parameter is the object."""
        for atom in functions:
            if isinstance(atom, FunctionObject) and parameters_of(atom.function):
                self.give(atom.function, parameters_of(atom.function)[0].arg, receiver)

    def _pass(
        self, function: Function, skip: int, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]
    ) -> None:
        names = [parameter.arg for parameter in parameters_of(function)][skip:]
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                break
            if index < len(names):
                self.give(function, names[index], arguments[index])
        for name, value in keywords.items():
            self.give(function, name, value)

    def _is_subscripted(self, node: ast.Call, scope: Scope) -> bool:
        """Whether the result, or the name it is assigned to, is indexed by a number in the same function."""
        function = self.current.node if self.current is not None else scope.module.tree
        if function not in self._subscripts:
            self._subscripts[function] = _subscripts(function)
        return node in self._subscripts[function]

    # Strings that name classes and methods

    def _mixin(self, node: ast.expr, value: Value, scope: Scope) -> None:
        """A class that the API mixes into its worker: its ``self`` is the worker."""
        for atom in value:
            if not isinstance(atom, Text) or "." not in atom.text or not self.program.owns(atom.text):
                continue
            base, _, name = atom.text.rpartition(".")
            found = self.from_import(base, name)
            classes = [item.cls for item in found if isinstance(item, ClassObject)]
            if found == MISSING:
                self._report(
                    Finding(
                        "missing-name", atom.text, name, self._site(node, scope), f"names {atom.text}",
                        "no such class", Severity.START, self._moved(name, base, False),
                    )
                )  # fmt: skip
            for cls in classes:
                if cls not in self.members.hosts and self._workers:
                    self.members.hosts[cls] = self._workers
                self._check_clash(node, cls, scope)

    def _check_clash(self, node: ast.expr, cls: Class, scope: Scope) -> None:
        """The API refuses an extension that has a name of its worker; two leading underscores are exempt."""
        own = [name for name in self.members.body(cls).names if not name.startswith("__")]
        for name in own:
            for worker in self._workers:
                home = self.members.home(worker, name)
                if home is not None and name in self.members.body(home).names:
                    self._report(
                        Finding(
                            "name-clash", f"{home.symbol}.{name}", name, self._site(node, scope),
                            f"{cls.node.name} defines {name}", f"{home.node.name} has {name} already", Severity.START,
                        )
                    )  # fmt: skip
                    break

    def _rpc(
        self, node: ast.Call, callee: Value, arguments: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """A method called by name in the workers."""
        if not any(self._of_api(atom) for atom in callee) or not self._workers:
            return
        method = keywords.get("method", arguments[0] if arguments else frozenset())
        names = [atom.text for atom in method if isinstance(atom, Text)]
        hosts = list(self.members.hosts) or list(self._workers)
        for name in names:
            values = {cls: self.attribute_of(Instance(cls), name) for cls in hosts}
            there = [value for value in values.values() if value is not None and value != MISSING]
            functions = [atom for value in there for atom in value if isinstance(atom, FunctionObject)]
            # A worker is a whole object: a method that it only inherits to be overridden is none.
            real = [atom for atom in functions if not is_abstract(atom.function)]
            if there and (real or not functions):
                self._rpc_call(node, name, real, keywords, scope)
            elif None not in values.values():
                self._report_rpc(node, name, hosts[0], scope)

    def _report_rpc(self, node: ast.Call, name: str, host: Class, scope: Scope) -> None:
        self._report(
            Finding(
                "missing-rpc-method", f"{self._workers[0].symbol}.{name}", name, self._site(node, scope),
                f"calls the worker's {name}", f"no worker has {name}", Severity.RUN,
                self._renamed_attribute(Instance(host), name),
            )
        )  # fmt: skip

    def _rpc_call(
        self, node: ast.Call, name: str, functions: list[FunctionObject], keywords: dict[str, Value], scope: Scope
    ) -> None:
        call = self._rpc_arguments(keywords)
        for atom in functions:
            function = atom.function
            if self._is_api(function.module.name):
                self._use(Use("rpc", self._site(node, scope), name, function.symbol, self.signatures.of(atom), call))
            else:
                self._edges.setdefault(self.current, set()).add(function)
                self._give_rpc(function, keywords)
        if call is None or not functions:
            return
        judged = [(s, list(problems(call, s))) for s in (self.signatures.of(atom) for atom in functions) if s]
        if judged and all(found for _, found in judged):
            for problem in judged[0][1]:
                self._report_call(node, call, judged[0][0], problem, (), scope)

    @staticmethod
    def _rpc_arguments(keywords: dict[str, Value]) -> Call | None:
        positional, names = 0, frozenset[str]()
        for atom in keywords.get("args", frozenset()):
            if not isinstance(atom, SequenceAtom) or atom.items is None:
                return None
            positional = len(atom.items)
        for atom in keywords.get("kwargs", frozenset()):
            if not isinstance(atom, Mapping) or atom.keys is None:
                return None
            names = atom.keys
        return Call(positional, tuple(sorted(names)))

    def _give_rpc(self, function: Function, keywords: dict[str, Value]) -> None:
        names = [parameter.arg for parameter in parameters_of(function)][1:]
        for atom in keywords.get("args", frozenset()):
            if isinstance(atom, SequenceAtom) and atom.items is not None:
                for name, value in zip(names, atom.items, strict=False):
                    self.give(function, name, value)

    # Guards

    def saw_branch(self, node: ast.If, scope: WalkScope) -> None:
        """``if not guard(model): raise``: architectures that the guard refuses."""
        test = node.test
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call)):
            return
        guard = test.operand
        if not (isinstance(node.body[-1], ast.Raise) and guard.args):
            return
        callee = self.evaluate(guard.func, scope)
        wanted = self.guarded_classes(callee)
        value = self.evaluate(guard.args[0], scope)
        refused = sorted(
            {a.tag for a in value if isinstance(a, Instance) and a.tag and self.conforms(a.cls, wanted) is False}
        )
        if wanted and refused:
            protocol = wanted[-1].node.name
            self._report(
                Finding(
                    "refused-by-guard", wanted[-1].symbol, protocol, self._site(node, scope),
                    f"raises unless the model is a {protocol}", f"{', '.join(refused)} is no {protocol}", Severity.RUN,
                    applies_to=tuple(refused),
                )
            )  # fmt: skip


def _tag(atom: Atom) -> str:
    if isinstance(atom, FunctionObject):
        return _tag(atom.bound) if atom.bound is not None else ""
    return atom.tag if isinstance(atom, Instance) else ""


def _subscripts(function: ast.AST) -> set[ast.expr]:
    """Expressions that a function indexes by a number, at once or by a name that it gives them."""
    nodes = list(every_node(function))
    found = {item.value for item in nodes if isinstance(item, ast.Subscript) and _is_number(item.slice)}
    names = {item.id for item in found if isinstance(item, ast.Name)}
    named = {
        item.value
        for item in nodes
        if isinstance(item, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in names for target in item.targets)
    }
    return found | named


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
