"""Imports and attributes of the API that the code under audit uses, and where; what was found in all."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .binding import Call
from .findings import Finding, Severity, Site, Use
from .functions import decorator_names
from .names import MISSING
from .scopes import Scope, WalkScope, walk_scope
from .signatures import Signatures
from .sources import Source
from .values import (
    ANYTHING,
    NONE,
    UNKNOWN,
    Atom,
    Class,
    ClassObject,
    Function,
    FunctionObject,
    Instance,
    Module,
    ModuleObject,
    Partial,
    Value,
    known,
)
from .walk import Walker

__all__ = ["Uses", "close", "is_abstract"]

LONGEST_LINE = 200


class Uses(Walker):
    """Keeps each use and each mismatch with its place; holds imports and attributes against the API."""

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
        return built and all(isinstance(item, FunctionObject) and is_abstract(item.function) for item in found)

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

    def _when(self, scope: Scope) -> Severity:
        walked = walk_scope(scope)
        at_import = walked is not None and walked.function == "<module>" and not self._is_script()
        return Severity.IMPORT if at_import else Severity.RUN

    def _is_script(self) -> bool:
        return len(self.caller.paths()) == 1


def is_abstract(function: Function) -> bool:
    """A method that is there to be overridden: it is marked so, or does nothing but raise NotImplementedError."""
    if isinstance(function.node, ast.Lambda):
        return False
    body = [item for item in function.node.body if not isinstance(item, ast.Expr)]
    raises = len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])
    return raises or "abstractmethod" in decorator_names(function)


def close(name: str, names: Iterable[str]) -> str:
    """The most similar name, if one is similar."""
    import difflib

    found = difflib.get_close_matches(name, sorted(set(names) - {name}), n=1, cutoff=0.7)
    return found[0] if found else ""
