"""Holds each use of the API against the API's sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .binding import Call, Problem, problems, read_call
from .findings import Finding, Severity, Site, Use
from .infer import MISSING, decorator_names
from .program import Program
from .scopes import Scope, every_node, parameters_of
from .signatures import Signature, Signatures
from .sources import Source
from .values import (
    ANYTHING,
    NONE,
    UNKNOWN,
    Atom,
    Class,
    ClassObject,
    External,
    Function,
    FunctionObject,
    Instance,
    Mapping,
    Module,
    ModuleObject,
    Partial,
    Text,
    Value,
    known,
)
from .values import Sequence as SequenceAtom
from .walk import Walker, WalkScope, walk_scope

__all__ = ["Collector", "collect"]

# Enough for what one function hands to the next to settle.
PASSES = 3
LONGEST_LINE = 200
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


class Collector(Walker):
    """The auditor of one pair."""

    caller: Source
    api: Source

    def begin(self, last: bool) -> None:
        """Start a pass; only the last one concludes."""
        self.next_pass()
        if not hasattr(self, "signatures"):
            self.signatures = Signatures(self)
            self.workers: tuple[Class, ...] = ()
            self._edges: dict[Function | None, set[Function]] = {}
            self._read: set[str] = set()
            self._homes: dict[tuple[str, str, bool], str] = {}
            self._built: set[Class] = set()
            self._subscripts: dict[ast.AST, set[ast.expr]] = {}
        self.signatures._known.clear()
        self._concluding = last
        self._uses: dict[tuple[str, int, int, str], Use] = {}
        self._found: dict[tuple[object, ...], tuple[Finding, Function | None]] = {}
        self.external: dict[tuple[int, int, str], tuple[str, Site, Call]] = {}

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

    # Results

    def uses(self) -> list[Use]:
        """Each use, in order of place."""
        return [self._uses[key] for key in sorted(self._uses)]

    def found(self) -> list[Finding]:
        """Each mismatch, with the time at which it shows."""
        starting = self._starting()
        results = []
        for finding, function in self._found.values():
            starts = finding.severity is Severity.RUN and function in starting
            results.append(finding.with_(severity=Severity.START) if starts else finding)
        return sorted(results, key=Finding.sort_key)

    def _starting(self) -> set[Function | None]:
        """Functions that run while an object of the code under audit is built."""
        every = {function for functions in self._edges.values() for function in functions} | set(self._edges)
        reached = {f for f in every if f is not None and getattr(f.node, "name", "") == "__init__"}
        stack = list(reached)
        while stack:
            for callee in self._edges.get(stack.pop(), ()):
                if callee not in reached:
                    reached.add(callee)
                    stack.append(callee)
        return set(reached)

    # Places

    def _site(self, node: ast.AST, scope: Scope) -> Site:
        walked = walk_scope(scope)
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        lines = scope.module.lines
        # Shown in a terminal: a line of a megabyte, or one that steers it, is cut and cleaned.
        code = lines[line - 1].strip()[:LONGEST_LINE] if line <= len(lines) else ""
        code = "".join(letter if letter.isprintable() else " " for letter in code)
        return Site(scope.module.path, line, column + 1, walked.function if walked else "<module>", code)

    @property
    def _concludes(self) -> bool:
        """Whether what is seen now is what is so: the last pass, and no rehearsal of a loop."""
        return self._concluding and not self.rehearsing

    def _report(self, finding: Finding) -> None:
        if self._concludes:
            self._found.setdefault(finding.key, (finding, self.current))

    def _use(self, use: Use) -> None:
        if self._concludes:
            self._uses.setdefault((use.site.path, use.site.line, use.site.column, use.key), use)

    def _is_api(self, name: str) -> bool:
        return name == self.api.package or name.startswith(f"{self.api.package}.")

    def _of_api(self, atom: Atom) -> bool:
        """Whether an atom is the API's, or a class of the caller that builds on one of the API's."""
        if isinstance(atom, ModuleObject):
            return self._is_api(atom.name)
        if isinstance(atom, (Instance, ClassObject)):
            order = [*self.members.order(atom.cls), *self.members.hosts.get(atom.cls, ())]
            return any(isinstance(item, Class) and self._is_api(item.module.name) for item in order)
        if isinstance(atom, FunctionObject):
            return self._is_api(atom.function.module.name)
        return isinstance(atom, Partial) and self._of_api(atom.function)

    # Imports

    def saw_import(self, node: ast.stmt, base: str, name: str, value: Value, scope: WalkScope) -> Value:
        """See :class:`Walker`; goes on with a name where it is now, so that what follows is held against it too."""
        if not self._is_api(base):
            return value
        site = self._site(node, scope)
        symbol = f"{base}.{name}" if name else base
        if value != MISSING:
            self._use(Use("import", site, symbol, self._symbol(value) or symbol))
            return value
        if self.tolerates("ImportError", "ModuleNotFoundError"):
            return ANYTHING
        home = self._home(name or base.rpartition(".")[2], base, not name)
        module_there = self.program.exists(base)
        severity = Severity.IMPORT if scope.function == "<module>" else Severity.RUN
        self._report(
            Finding(
                "missing-name" if module_there else "missing-module",
                symbol,
                name or base,
                site,
                f"imports {name or base}" + (f" from {base}" if name else ""),
                f"no {name} in {base}" if module_there else f"no module {base}",
                severity,
                self._moved(name or base.rpartition(".")[2], base, not name, home),
            )
        )
        return self.from_import(home, name) if home and name else ANYTHING

    def elsewhere(self, origin: tuple[int, str, str], importer: Module) -> Value:
        """See :class:`Inference`; only for the code under audit: inside the API a failed import is what it is."""
        level, base, name = origin
        if level or not name or self._is_api(importer.name) or not self._is_api(base):
            return MISSING
        home = self._home(name, base, False)
        return self.from_import(home, name) if home else MISSING

    def _home(self, name: str, base: str, is_module: bool) -> str:
        """The module that has a name now: of several, the nearest to where it was."""
        key = (name, base, is_module)
        if key not in self._homes:
            if is_module:
                homes = [module for module in self.api.modules() if module.rpartition(".")[2] == name]
            else:
                homes = self.program.homes(name, self.api.package)
            parts = set(base.split("."))
            homes.sort(key=lambda home: (-len(parts & set(home.split("."))), home.count("."), home))
            self._homes[key] = homes[0] if homes else ""
        return self._homes[key]

    def _moved(self, name: str, base: str, is_module: bool, home: str = "") -> str:
        home = home or self._home(name, base, is_module)
        if home:
            return f"it is in {home}"
        module = self.program.module(base) if not is_module else None
        near = close(name, module.bindings) if module is not None else ""
        return f"renamed to {near}?" if near else ""

    @staticmethod
    def _symbol(value: Value) -> str:
        for atom in value:
            if isinstance(atom, ClassObject):
                return atom.cls.symbol
            if isinstance(atom, FunctionObject):
                return atom.function.symbol
        return ""

    # Attributes

    def saw_attribute(self, node: ast.Attribute, base: Value, result: Value, scope: Scope) -> Value:
        """See :class:`Walker`."""
        if not scope.audited:
            return result
        if isinstance(node.ctx, ast.Load):
            self._read.add(node.attr)
        walked = walk_scope(scope)
        if walked is not None and self.text(node) in walked.paths:
            return walked.paths[self.text(node)]
        if self._check_attribute(node, node.attr, base, scope):
            return ANYTHING
        return result

    def _check_attribute(self, node: ast.AST, name: str, base: Value, scope: Scope, write: bool = False) -> bool:
        """Report an attribute that is certainly absent; whether it was."""
        missing: list[Atom] = []
        present = unsure = False
        for atom in base:
            if atom is NONE:
                continue
            # What the code itself puts there answers for what it reads, not for what it meant to set.
            found: Value | None = None
            if self._of_api(atom):
                own = write and isinstance(atom, Instance)
                found = self.members.attribute(atom, name) if own else self.attribute_of(atom, name)  # type: ignore[arg-type]
            if found == MISSING or (found and self._is_unimplemented(atom, found)):
                missing.append(atom)
            elif found is None:
                unsure = True
            else:
                present = True
                self._use_attribute(node, name, atom, scope)
        tagged: list[Atom] = [atom for atom in missing if isinstance(atom, Instance) and atom.tag]
        certain = missing if missing and not present and not unsure else tagged
        if not certain or self.tolerates("AttributeError"):
            return False
        if self._concludes:
            self._report_attribute(node, name, certain, scope, write)
        return not present and not unsure

    def _is_unimplemented(self, atom: Atom, found: Value) -> bool:
        """Whether an object that the code itself builds only inherits a method that is there to be overridden."""
        built = isinstance(atom, Instance) and atom.cls in self._built
        return built and all(isinstance(item, FunctionObject) and _is_abstract(item.function) for item in found)

    def _use_attribute(self, node: ast.AST, name: str, atom: Atom, scope: Scope) -> None:
        owner = ""
        if isinstance(atom, (Instance, ClassObject)):
            home = self.members.home(atom.cls, name)
            if home is None or not self._is_api(home.module.name):
                return
            owner = home.symbol
        elif isinstance(atom, ModuleObject):
            owner = atom.name
        text = self.text(node) if isinstance(node, ast.expr) else name
        self._use(Use("attribute", self._site(node, scope), text, f"{owner}.{name}"))

    def _report_attribute(self, node: ast.AST, name: str, missing: list[Atom], scope: Scope, write: bool) -> None:
        owners = sorted({self._name(atom) for atom in missing})
        tags = sorted({atom.tag for atom in missing if isinstance(atom, Instance) and atom.tag})
        first = min(missing, key=self._name)
        wants = f"{', '.join(owner.rpartition('.')[2] for owner in owners)} has no {name}"
        self._report(
            Finding(
                "missing-attribute",
                f"{owners[0]}.{name}",
                name,
                self._site(node, scope),
                f"{'sets' if write else 'reads'} .{name}",
                wants,
                Severity.SILENT if write else Severity.RUN,
                self._renamed_attribute(first, name),
                tuple(tags),
            )
        )

    def _name(self, atom: Atom) -> str:
        if isinstance(atom, (Instance, ClassObject)):
            host = next(iter(self.members.hosts.get(atom.cls, ())), None)
            return (host or atom.cls).symbol
        return atom.name if isinstance(atom, ModuleObject) else "?"

    def _renamed_attribute(self, atom: Atom, name: str) -> str:
        if isinstance(atom, ModuleObject):
            return self._moved(name, atom.name, False)
        names: set[str] = set()
        if isinstance(atom, (Instance, ClassObject)):
            for cls in [*self.members.order(atom.cls), *self.members.hosts.get(atom.cls, ())]:
                if isinstance(cls, Class):
                    names |= set(self.members.body(cls).names) | set(self.members.body(cls).assigned)
        near = close(name, names)
        return f"renamed to {near}?" if near else ""

    def saw_write(self, node: ast.Attribute, base: Value, scope: Scope) -> None:
        """See :class:`Walker`; a name that the caller reads back, or marks as private, is its own."""
        if node.attr.startswith("_") or (node.attr in self._read and not self._declared_somewhere(base, node.attr)):
            return
        foreign = frozenset(atom for atom in base if isinstance(atom, Instance) and self._is_api(atom.cls.module.name))
        if foreign and foreign == frozenset(known(base)) and UNKNOWN not in base:
            self._check_attribute(node, node.attr, foreign, scope, write=True)

    def _declared_somewhere(self, base: Value, name: str) -> bool:
        return any(self.members.attribute(a, name) not in (None, MISSING) for a in base if isinstance(a, Instance))

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
            _, signature, found = certain[0]
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

    def _when(self, scope: Scope) -> Severity:
        walked = walk_scope(scope)
        at_import = walked is not None and walked.function == "<module>" and not self._is_script()
        return Severity.IMPORT if at_import else Severity.RUN

    def _is_script(self) -> bool:
        return len(self.caller.paths()) == 1

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
            real = [atom for atom in functions if not _is_abstract(atom.function)]
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


def _is_abstract(function: Function) -> bool:
    """A method that is there to be overridden: it is marked so, or does nothing but raise NotImplementedError."""
    if isinstance(function.node, ast.Lambda):
        return False
    body = [item for item in function.node.body if not isinstance(item, ast.Expr)]
    raises = len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])
    return raises or "abstractmethod" in decorator_names(function)


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


def close(name: str, names: Iterable[str]) -> str:
    """The most similar name, if one is similar."""
    import difflib

    found = difflib.get_close_matches(name, sorted(set(names) - {name}), n=1, cutoff=0.7)
    return found[0] if found else ""
