"""Make a wheel's extension load on a system whose C++ or C library is older than the one that it was linked with.

Usage: ``relink.py EXTENSION.so RESULT.so OLD=NEW [OLD=NEW ...]``. In the result each imported symbol OLD is NEW, a
function of the same signature that every release of the library has, and the version that only OLD asked for is marked
weak, so that the loader no longer insists on it (https://man7.org/linux/man-pages/man5/elf.5.html, vna_flags). No code
changes. An extension that imports no OLD is copied as it is.

Exit code 2 if the version that OLD asks for is asked for by another symbol too.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

#: VER_FLG_WEAK of <elf.h>.
WEAK = 0x2
#: Where vna_flags, a half word, lies in an Elf64_Vernaux: after the word vna_hash.
FLAGS_AT = 4


def asked_versions(extension: Path) -> dict[str, str]:
    """Imported symbol to the version that it asks for, such as ``GLIBC_2.38``; those that ask for none are left out."""
    with extension.open("rb") as file:
        elf = ELFFile(file)
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        indices = [entry["ndx"] for entry in elf.get_section_by_name(".gnu.version").iter_symbols()]
        needed = elf.get_section_by_name(".gnu.version_r").iter_versions()
        names = {aux["vna_other"]: aux.name for _, auxiliaries in needed for aux in auxiliaries}
    imported = [(s.name, i) for s, i in zip(symbols, indices, strict=True) if s["st_shndx"] == "SHN_UNDEF"]
    return {name: names[index] for name, index in imported if index in names}


def rename(extension: Path, names: dict[str, str]) -> None:
    """Rename imported symbols and let the new ones ask for no version."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("".join(f"{old} {new}\n" for old, new in names.items()))
        listed.flush()
        _patchelf("--rename-dynamic-symbols", listed.name, extension)
    for new in names.values():
        _patchelf("--clear-symbol-version", new, extension)


def _patchelf(*words: object) -> None:
    subprocess.run([Path(sys.executable).with_name("patchelf"), *map(str, words)], check=True)


def weaken(extension: Path, versions: set[str]) -> None:
    """Mark requirements of these versions weak, in place."""
    with extension.open("r+b") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        start = section["sh_offset"]
        places = []
        for need, auxiliaries in section.iter_versions():
            place = start + need["vn_aux"]
            for aux in auxiliaries:
                places += [(place, aux["vna_flags"])] if aux.name in versions else []
                place += aux["vna_next"]
            start += need["vn_next"]
        for place, flags in places:
            file.seek(place + FLAGS_AT)
            file.write(struct.pack("<H", flags | WEAK))


def main(source: str, result: str, *words: str) -> int:
    """Relink one extension."""
    extension = Path(source)
    asked = asked_versions(extension)
    names = {old: new for old, _, new in (word.partition("=") for word in words) if old in asked}
    versions = {asked[old] for old in names}
    others = sorted(symbol for symbol, version in asked.items() if version in versions and symbol not in names)
    if others:
        print(f"{extension.name}: {', '.join(sorted(versions))} is needed by {', '.join(others)} too.", file=sys.stderr)
        print("Give each of them a replacement: OLD=NEW.", file=sys.stderr)
        return 2
    # Never in place: what uv installs is a hard link to its cache.
    copy = Path(f"{result}.new")
    shutil.copy(extension, copy)
    if names:
        rename(copy, names)
        weaken(copy, versions)
    copy.replace(result)
    print(f"{extension.name}: {', '.join(f'{old} is now {new}' for old, new in names.items()) or 'nothing to do'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
