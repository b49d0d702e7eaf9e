"""Python sources of a package, read as text: installed, a folder, a wheel, or a release number.

Nothing is imported and nothing is unpacked outside the cache. A file is read when it is asked for.
"""

from __future__ import annotations

import functools
import importlib.util
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version

from ..drift import UsageError
from ..versions import installed, release

__all__ = ["FolderSource", "Source", "WheelSource", "local", "open_source"]

# The longest module of vLLM 0.32.0 has 0.4 MB; ast needs some hundred times the size of its input.
MAX_FILE_BYTES = 8_000_000
# What reading a member of a broken or encrypted zip file raises, by how it is compressed.
READ_ERRORS = (
    zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, ValueError, zlib.error, lzma.LZMAError,
)  # fmt: skip
VERSION_ASSIGNMENT = re.compile(r"""^__version__\b[^'"\n]*['"]([^'"]+)['"]""", re.MULTILINE)


class Source:
    """The modules of one top-level package.

    Attributes:
        package: Import name of the package.
        label: What it is called in output: a release, or where it was read.
        version: Its version as written, or ``"unknown"``.
    """

    def __init__(self, package: str, label: str, version: str) -> None:
        self.package, self.label, self.version = package, label, version

    @property
    def release(self) -> str:
        """The release number alone, or ``"unknown"``."""
        return release(self.version)

    def paths(self) -> list[str]:
        """Every ``.py`` file, relative to the folder that holds the package, with forward slashes."""
        raise NotImplementedError

    def read(self, path: str) -> bytes | None:
        """Content of one file, or None if there is none.

        Raises:
            UsageError: The file is too large to be a module.
        """
        raise NotImplementedError

    def path_of(self, module: str) -> str | None:
        """The file of a module: ``a/b.py`` or ``a/b/__init__.py``; None if neither is there."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if self.has(path)), None)

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        raise NotImplementedError

    def is_folder(self, module: str) -> bool:
        """Whether a folder of this name holds modules; a package may lack ``__init__.py``."""
        return module.replace(".", "/") in self._folders

    @functools.cached_property
    def _folders(self) -> frozenset[str]:
        found: set[str] = set()
        for path in self.paths():
            folder = path.rpartition("/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    def modules(self) -> Iterator[str]:
        """Dotted name of every module."""
        for path in self.paths():
            parts = PurePosixPath(path).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class FolderSource(Source):
    """A package in a folder.

    Args:
        package: Import name.
        root: The folder that *holds* the package folder (``site-packages``), or the folder of a single module.
        label: What to call it.
        version: Its version as written.
        only: For a single script: its file name.
    """

    def __init__(self, package: str, root: Path, label: str, version: str, only: str | None = None) -> None:
        super().__init__(package, label, version)
        self.root, self._only = root, only

    @functools.cached_property
    def _files(self) -> frozenset[str]:
        return frozenset([self._only] if self._only else _modules_under(self.root, self.package))

    def paths(self) -> list[str]:
        """See :class:`Source`."""
        return sorted(self._files)

    def has(self, path: str) -> bool:
        """See :class:`Source`."""
        return path in self._files

    def read(self, path: str) -> bytes | None:
        """See :class:`Source`."""
        if path not in self._files:
            return None
        name = f"{self.root}/{path}"
        try:
            with open(name, "rb") as file:  # noqa: PTH123 (a search for where a name went opens thousands)
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise _unreadable(name, error) from None
        _check_size(len(content), name)
        return content


def _modules_under(root: Path, package: str) -> Iterator[str]:
    """Every module of a package, relative to the root. Links to folders are not followed: they may lead in a circle."""

    def refuse(error: OSError) -> None:
        raise _unreadable(str(error.filename), error) from None

    for folder, _, names in os.walk(root / package, onerror=refuse):
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        for name in names:
            if name.endswith(".py") and name.isprintable() and os.path.isfile(f"{folder}/{name}"):  # noqa: PTH113 (thousands of files)
                yield f"{inside}/{name}"


def _unreadable(name: str, error: OSError) -> UsageError:
    return UsageError("Every module must be readable.", f"{name}: {error.strerror or error}", "Check the source.")


class WheelSource(Source):
    """A package inside a wheel, read in place."""

    def __init__(self, package: str, wheel: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(wheel)
            names = self._zip.namelist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise UsageError(
                "A wheel is a zip file.", f"{wheel.name}: {error}", "Download it again, or name a folder or a release."
            ) from None
        outside = [name for name in names if _is_outside(name)]
        if outside:
            raise UsageError(
                "A wheel holds only paths inside its root.", f"{outside[0]!r} in {wheel.name}", "Do not install it."
            )
        super().__init__(package, wheel.name, _wheel_version(wheel))
        self.wheel = wheel
        prefix = f"{package}/"
        self._names = {name for name in names if name.startswith(prefix) and name.endswith(".py")}
        if not self._names:
            raise UsageError(
                f"The wheel must hold the package {package}.", f"{wheel.name} without it", "Name another wheel."
            )

    def paths(self) -> list[str]:
        """See :class:`Source`."""
        return sorted(self._names)

    def has(self, path: str) -> bool:
        """See :class:`Source`."""
        return path in self._names

    def read(self, path: str) -> bytes | None:
        """See :class:`Source`."""
        if path not in self._names:
            return None
        _check_size(self._zip.getinfo(path).file_size, f"{path} in {self.wheel.name}")
        try:
            # A forged size in the header must not unpack more than it says.
            with self._zip.open(path) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except READ_ERRORS as error:
            raise UsageError("The wheel must be readable.", f"{path}: {error}", "Download it again.") from None
        _check_size(len(content), f"{path} in {self.wheel.name}")
        return content


def open_source(package: str, where: str) -> Source:
    """Find the sources of a package.

    Args:
        package: Import name, ``vllm`` or ``speculators``.
        where: ``installed``; a release number (fetched once into the cache); a wheel; the package's folder or the
            folder that holds it. For a caller: also a ``.py`` file.

    Returns:
        The sources.

    Raises:
        UsageError: Nothing of the kind is there, or it cannot be read.
    """
    if where == "installed":
        return _installed(package)
    path = local(where)
    if path is not None and path.is_dir():
        return _folder(package, path)
    if path is not None and path.is_file():
        if path.suffix == ".py":
            return FolderSource(path.stem, path.parent, path.name, "unknown", only=path.name)
        return WheelSource(package, path)
    if _is_release(where):
        from .fetch import fetch

        return fetch(package, where)
    raise UsageError(
        f"The sources of {package} must be a release number, a wheel, a folder, or the word installed.",
        f"{where!r}, which is none of them",
        "Check the path.",
    )


def local(where: str) -> Path | None:
    """The path, if something can be there."""
    try:
        path = Path(where).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # a name that is too long, a user that is not there, a NUL
        return None


def _installed(package: str) -> Source:
    found = installed(package)
    spec = importlib.util.find_spec(package) if found else None
    if found is None or spec is None or spec.origin is None:
        raise UsageError(
            f"The installed {package} can only be read where it is installed.",
            f"no {package} in this environment",
            "Name a release number, a wheel or a folder.",
        )
    root = Path(spec.origin).parent.parent
    version = _folder_version(root, package)
    version = found.version if version == "unknown" else version
    return FolderSource(package, root, f"{package} {version}", version)


def _folder(package: str, path: Path) -> Source:
    for root in (path, path.parent, path / "src"):
        if (root / package / "__init__.py").is_file() and (root != path.parent or path.name == package):
            version = _folder_version(root, package)
            label = f"{package} {version}" if version != "unknown" else str(path)
            return FolderSource(package, root, label, version)
    raise UsageError(
        f"The folder must be the package {package} or hold it.",
        f"{path} without {package}/__init__.py",
        "Check the path.",
    )


def _folder_version(root: Path, package: str) -> str:
    """From the metadata beside the package, or the version file that its build wrote."""
    pattern = re.compile(rf"{package}(?:[-_]\w+)?-(\d[^-]*)\.dist-info")
    found = [match[1] for folder in root.glob(f"{package}*.dist-info") if (match := pattern.fullmatch(folder.name))]
    # The CPU builds of vLLM before 0.13 bring a second, empty distribution: vllm 0.0.0.
    if found:
        return max(found, key=lambda text: Version(text) if _is_release(text) else Version("0"))
    for name in ("_version.py", "version.py"):
        file = root / package / name
        match = VERSION_ASSIGNMENT.search(_beginning(file)) if file.is_file() else None
        if match:
            return match[1]
    return "unknown"


def _beginning(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(100_000)
    except OSError as error:
        raise _unreadable(str(file), error) from None


def _wheel_version(wheel: Path) -> str:
    parts = wheel.name.split("-")
    return parts[1] if len(parts) > 1 and _is_release(parts[1]) else "unknown"


def _is_release(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _is_outside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name) is not None


def _check_size(size: int, name: str) -> None:
    if size > MAX_FILE_BYTES:
        raise UsageError(
            f"A module has at most {MAX_FILE_BYTES // 1_000_000} MB.", f"{name} with {size} bytes", "Check the source."
        )
