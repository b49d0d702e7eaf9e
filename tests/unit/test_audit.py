"""The audit on small made-up packages: what it follows, what it finds, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile

import pytest

from speculators_compat.audit import infer, sources
from speculators_compat.audit.compare import audit
from speculators_compat.audit.diff import compare_releases
from speculators_compat.audit.output import as_dict, as_markdown, as_sarif
from speculators_compat.audit.sources import open_source
from speculators_compat.drift import UsageError

# A small vLLM: the same idioms in a few lines each.
API = {
    "vllm/__init__.py": """
        import typing
        MODULE_ATTRS = {"LLM": ".entrypoints.llm:LLM"}
        if typing.TYPE_CHECKING:
            from vllm.entrypoints.llm import LLM
        else:
            def __getattr__(name):
                return MODULE_ATTRS[name]
    """,
    "vllm/_version.py": "__version__ = version = '1.2.0'",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/llm.py": """
        from vllm.config import EngineArgs
        from vllm.outputs import Output
        class LLM:
            def __init__(self, model, *, seed=0, **kwargs):
                self.args = EngineArgs(model=model, **kwargs)
            def generate(self, prompts, params=None) -> list[Output]: ...
            def collective_rpc(self, method, timeout=None, args=(), kwargs=None): ...
    """,
    "vllm/outputs.py": """
        from dataclasses import dataclass, field
        @dataclass
        class Piece:
            text: str
        @dataclass
        class Output:
            request_id: str
            pieces: list[Piece] = field(default_factory=list)
            @property
            def first(self) -> "Piece":
                return self.pieces[0]
    """,
    "vllm/config/__init__.py": "from vllm.config.parts import CacheConfig, EngineArgs, Mode, SchedulerConfig\n",
    "vllm/config/utils.py": """
        from pydantic import ConfigDict
        from pydantic.dataclasses import dataclass
        def config(cls):
            return dataclass(cls, config=ConfigDict(extra="forbid"))
    """,
    "vllm/config/parts.py": """
        import enum
        from dataclasses import InitVar, dataclass
        from pydantic import Field
        from pydantic.dataclasses import dataclass as pydantic_dataclass
        from vllm.config.utils import config
        class Mode(enum.IntEnum):
            ON = 1
        @dataclass
        class EngineArgs:
            model: str
            dtype: str = "auto"
        @config
        class SchedulerConfig:
            max_model_len: InitVar[int]
            max_num_seqs: int = Field(default=8, gt=0)
            policy: str = "fcfs"
        @pydantic_dataclass
        class CacheConfig:
            block_size: int = 16
            num_blocks: int = Field(default=0, init=False)
    """,
    "vllm/platforms/__init__.py": "",
    "vllm/platforms/cuda.py": 'worker_cls = "vllm.worker.Worker"',
    "vllm/guards.py": """
        from typing import ClassVar, Protocol, TypeIs
        class SupportsIt(Protocol):
            supports_it: ClassVar[bool] = True
        def supports_it(model: object) -> TypeIs[SupportsIt]: ...
    """,
    "vllm/models.py": """
        import torch.nn as nn
        from vllm.guards import SupportsIt
        class Inner(nn.Module):
            def __init__(self):
                self.layers = nn.ModuleList()
            def embed(self, ids): ...
        class Plain(nn.Module, SupportsIt):
            def __init__(self):
                self.model = Inner()
        class Wrapped(nn.Module):
            def __init__(self):
                self.language_model = Plain()
    """,
    "vllm/abstract.py": """
        from abc import ABC, abstractmethod
        class Base(ABC):
            @abstractmethod
            def work(self): ...
            @abstractmethod
            def rest(self): ...
        class Real(Base):
            def rest(self): ...
        def make() -> Base: ...
    """,
    "vllm/worker.py": """
        import torch
        class Runner:
            def load(self):
                self.model = self._load()
            def _load(self) -> torch.nn.Module: ...
        class Worker:
            def __init__(self):
                self.runner = Runner()
            def get_spec(self, deep=False): ...
    """,
}
MODELS = ("vllm.models.Plain", "vllm.models.Wrapped")


@pytest.fixture
def write(tmp_path):
    """Write files into a folder; returns it."""

    def _write(files, name="api"):
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return tmp_path / name

    return _write


@pytest.fixture
def found(write):
    """Audit a script against the small vLLM, with changes; returns (kind, name, line) of each finding."""

    def _found(script, changes=None, before=None):
        folder = write({"script.py": script}, "caller")
        api = write({**API, **(changes or {})})
        written_for = open_source("vllm", str(write({**API, **before}, "before"))) if before is not None else None
        caller = open_source("speculators", str(folder / "script.py"))
        report = audit(caller, [open_source("vllm", str(api))], MODELS, written_for)
        return [(finding.kind, finding.name, finding.site.line) for finding in report.findings]

    return _found


FITS = [
    "from vllm import LLM\nLLM('m', seed=1, dtype='auto').generate(['a'])[0].first.text",
    "import vllm\nllm = vllm.LLM('m')\nfor out in llm.generate([]):\n    out.pieces[0].text",
    "from vllm.config import SchedulerConfig\nSchedulerConfig(max_model_len=1, policy='x').max_num_seqs",
    "from vllm.config import Mode\nMode.ON.name",
    "from vllm.abstract import Real, make\nReal().rest()\nmake().work()",
    "try:\n    from vllm.gone import x\nexcept ImportError:\n    x = None",
    "from vllm import LLM\nllm = LLM('m')\nif hasattr(llm, 'novel'):\n    llm.novel()",
    "from vllm import LLM\nllm = LLM('m')\ngetattr(llm, 'novel', None)",
    "from vllm import LLM\nllm = LLM('m')\nllm._mine = 1\nllm._mine",
    "from vllm import LLM\nkw = {'dtype': 'auto'}\nkw['seed'] = 3\nLLM('m', **kw)",
    "from vllm import LLM\nLLM('m', **anything())",
    "from vllm.outputs import Output\ndef f(x):\n    if isinstance(x, Output):\n        x.pieces\n    else: x.z\nf(3)",
]


@pytest.mark.parametrize("script", FITS)
def test_what_fits_is_not_reported(found, script):
    assert found(script) == []


MISFITS = [
    ("from vllm import LLN", [("missing-name", "LLN", 1)]),
    ("from vllm.gone import x", [("missing-module", "x", 1)]),
    ("import vllm.gone", [("missing-module", "vllm.gone", 1)]),
    ("import vllm\nvllm.LLN", [("missing-attribute", "LLN", 2)]),
    ("from vllm import LLM\nLLM('m', dtypo='auto')", [("unexpected-argument", "dtypo", 2)]),
    ("from vllm import LLM\nkw = dict(dtypo=1)\nLLM('m', **kw)", [("unexpected-argument", "dtypo", 3)]),
    ("from vllm import LLM\nLLM()", [("missing-argument", "model", 2)]),
    ("from vllm import LLM\nLLM('m', 'n')", [("too-many-arguments", "2", 2)]),
    ("from vllm import LLM\nLLM('m', model='n')", [("repeated-argument", "model", 2)]),
    ("from vllm import LLM\nLLM('m').generate([])[0].first.txt", [("missing-attribute", "txt", 2)]),
    (
        ("from vllm import LLM\n"
         "out = LLM('m').generate([])\n"
         "out = out[0]\n"
         "out.piece"),
        [("missing-attribute", "piece", 4)],
    ),
    (
        ("from vllm import LLM\n"
         "def f(o):\n"
         "    o.piece\n"
         "for o in LLM('m').generate([]):\n"
         "    f(o)"),
        [("missing-attribute", "piece", 3)],
    ),
    ("from vllm import LLM\n[o.piece for o in LLM('m').generate([])]", [("missing-attribute", "piece", 2)]),
    (
        ("from vllm import LLM\n"
         "class A:\n"
         "    def __init__(self):\n"
         "        self.llm = LLM('m')\n"
         "    def go(self):\n"
         "        self.llm.run()"),
        [("missing-attribute", "run", 6)],
    ),
    (
        ("from vllm import LLM\n"
         "def make():\n"
         "    return LLM('m')\n"
         "with open('x'):\n"
         "    make().run()"),
        [("missing-attribute", "run", 5)],
    ),
    (
        ("from vllm import LLM\n"
         "llm = None\n"
         "while True:\n"
         "    if llm:\n"
         "        llm.run()\n"
         "    llm = LLM('m')"),
        [("missing-attribute", "run", 5)],
    ),
    ("from vllm import LLM\ngetattr(LLM('m'), 'run')", [("missing-attribute", "run", 2)]),
    ("from vllm.config import SchedulerConfig\nSchedulerConfig()", [("missing-argument", "max_model_len", 2)]),
    (
        ("from vllm.config import SchedulerConfig\n"
         "SchedulerConfig(max_model_len=1, novel=2)"),
        [("unexpected-argument", "novel", 2)],
    ),
    (
        ("from vllm.config import SchedulerConfig\n"
         "SchedulerConfig(max_model_len=1).max_model_len"),
        [("missing-attribute", "max_model_len", 2)],
    ),
    ("from vllm.config import CacheConfig\nCacheConfig(novel=1)", [("ignored-argument", "novel", 2)]),
    ("from vllm.config import CacheConfig\nCacheConfig(num_blocks=1)", [("ignored-argument", "num_blocks", 2)]),
    ("from vllm.config import CacheConfig\nCacheConfig().num_block = 1", [("missing-attribute", "num_block", 2)]),
    ("from vllm.config import Mode\nMode.OFF", [("missing-attribute", "OFF", 2)]),
    ("from vllm.abstract import Real\nReal().work()", [("missing-attribute", "work", 2)]),
    (
        ("from functools import partial\n"
         "from vllm import LLM\n"
         "partial(LLM('m').generate, params=1)()"),
        [("missing-argument", "prompts", 3)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "expected"), MISFITS)
def test_each_misfit_is_reported_at_its_line(found, script, expected):
    assert found(script) == expected


EXTENSION = """
import types
from vllm import LLM
from vllm.guards import supports_it

def forward(self, ids):
    return self.embedd(ids)

class Extension:
    def setup(self, layers):
        model = self.runner.model
        if not supports_it(model):
            raise ValueError
        self.inner = model.model
        self.inner.forward = types.MethodType(forward, self.inner)

llm = LLM("m", worker_extension_cls="script.Extension")
llm.collective_rpc("setup", args=([1],))
llm.collective_rpc("setup", args=(1, 2))
llm.collective_rpc("get_spec", kwargs={"deep": True})
llm.collective_rpc("get_specs")
"""


def test_worker_extension_rpc_guard_and_rebound_method_are_followed(found):
    changes = {
        "vllm/config/parts.py": API["vllm/config/parts.py"].replace(
            'dtype: str = "auto"', 'worker_extension_cls: str = ""'
        )
    }
    assert set(found(EXTENSION, changes)) == {
        ("refused-by-guard", "SupportsIt", 12),
        ("missing-attribute", "embedd", 7),
        ("too-many-arguments", "2", 19),
        ("missing-rpc-method", "get_specs", 21),
    }


def test_an_extension_may_not_share_a_name_with_the_worker(found):
    script = EXTENSION.replace("def setup", "def get_spec")
    assert ("name-clash", "get_spec", 17) in found(script, {})


def test_a_module_is_a_loaded_model_only_where_the_api_is_at_hand(write):
    """``nn.Module`` in code that never meets vLLM is any layer, and ``type[nn.Module]`` any layer's class."""
    body = """
        # Weights that vllm serves.
        from torch import nn
        def run(model: nn.Module):
            model.layers
        def build(norm: type[nn.Module]):
            norm(8, eps=1e-6)
    """
    caller = write(
        {
            "speculators/__init__.py": "",
            "speculators/apart.py": body,
            "speculators/near.py": f"        import vllm{body}",
        },
        "caller",
    )
    report = audit(
        open_source("speculators", str(caller / "speculators")), [open_source("vllm", str(write(API)))], MODELS
    )
    found = [(finding.kind, finding.name, finding.site.path.rpartition("/")[2]) for finding in report.findings]
    assert found == [("missing-attribute", "layers", "near.py")]


def test_a_moved_name_says_where_it_went(write):
    caller = write({"script.py": "from vllm.outputs import Piece"}, "caller")
    moved = {**API, "vllm/outputs.py": "class Output: ...", "vllm/pieces.py": "class Piece: ..."}
    report = audit(open_source("speculators", str(caller / "script.py")), [open_source("vllm", str(write(moved)))], ())
    assert [finding.hint for finding in report.findings] == ["it is in vllm.pieces"]


def test_reordered_arguments_and_changed_defaults_show_beside_the_release_it_was_written_for(found):
    script = "from vllm import LLM\nLLM('m').generate([], 1)"
    llm = API["vllm/entrypoints/llm.py"]
    swapped = {"vllm/entrypoints/llm.py": llm.replace("prompts, params=None", "params, prompts=None")}
    assert found(script, swapped, before={}) == [("reordered-arguments", "params", 2)]
    renamed = {"vllm/entrypoints/llm.py": llm.replace("prompts, params=None", "texts, params=None")}
    assert found(script, renamed, before={}) == []  # given by position, its name does not matter
    default = {"vllm/entrypoints/llm.py": llm.replace("seed=0", "seed=None")}
    assert found(script, default, before={}) == [("changed-default", "seed", 2)]


def test_an_owner_that_can_no_longer_be_followed_is_asked_by_name(found):
    script = "from vllm import LLM\nLLM('m').generate([])[0].request_id"
    lost = {
        "vllm/entrypoints/llm.py": API["vllm/entrypoints/llm.py"].replace(" -> list[Output]", ""),
        "vllm/outputs.py": API["vllm/outputs.py"].replace("request_id", "rid"),
    }
    assert found(script, lost) == []
    assert found(script, lost, before={}) == [("missing-attribute", "request_id", 2)]


def test_since_names_the_first_release_that_has_the_mismatch(write):
    caller = open_source(
        "speculators", str(write({"s.py": "from vllm import LLM\nLLM('m').generate([])"}, "c") / "s.py")
    )
    renamed = API["vllm/entrypoints/llm.py"].replace("def generate", "def run")
    newer = {**API, "vllm/entrypoints/llm.py": renamed, "vllm/_version.py": "__version__ = '1.3.0'"}
    apis = [open_source("vllm", str(write(API, "old"))), open_source("vllm", str(write(newer, "new")))]
    report = audit(caller, apis, ())
    assert [(finding.since, finding.releases) for finding in report.findings] == [("vllm 1.3.0", ("vllm 1.3.0",))]
    assert report.unmended
    changes = compare_releases(caller, *apis, models=()).changes
    assert [(change.site.line, change.breaks) for change in changes] == [(2, True)]


def test_the_outputs_say_the_same(write):
    caller = open_source("speculators", str(write({"s.py": "from vllm import LLN, LLO"}, "c") / "s.py"))
    report = audit(caller, [open_source("vllm", str(write(API)))], ())
    data = json.loads(json.dumps(as_dict(report)))
    assert (data["schema_version"], data["summary"]["unmended"]) == (1, 2)
    assert [item["name"] for item in data["findings"]] == ["LLN", "LLO"]
    results = as_sarif(report)["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "error"]
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert as_markdown(report).count("s.py:1") == 2


HOSTILE = {
    "syntax error": {"vllm/outputs.py": "def f(:"},
    "null byte": {"vllm/outputs.py": "x = '\0'"},
    "binary": {"vllm/outputs.py": b"\x7fELF\x80\xff"},
    "unknown encoding": {"vllm/outputs.py": b"# -*- coding: klingon -*-\n"},
    "circle": {"vllm/outputs.py": "from vllm.other import Output", "vllm/other.py": "from vllm.outputs import Output"},
    "circle of stars": {"vllm/outputs.py": "from vllm.outputs import *\nfrom vllm.other import *"},
    "deep nesting": {"vllm/outputs.py": "x = " + "(" * 5000 + ")" * 5000},
    "deep expression": {"vllm/outputs.py": "Output = " + "+".join(["a"] * 200_000)},
    "long chain": {"vllm/outputs.py": "Output = a" + ".b" * 50_000},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_are_refused_in_one_line(write, name):
    caller = write({"script.py": "from vllm.outputs import Output\nOutput()"}, "caller")
    api = write({**API, **HOSTILE[name]})
    done = _command(str(caller / "script.py"), "--vllm", str(api))
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1


def _command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "speculators_compat", "audit", *arguments], capture_output=True, text=True, check=False
    )


def _nested(head, depth, tail):
    return "\n".join("    " * level + head for level in range(depth)) + f"\n{'    ' * depth}{tail}\n"


#: Code whose possibilities double with every level, link or line: it is followed in seconds, or refused.
BRANCHING = {
    "loops": _nested("for x in vllm.LLM('m').generate([]):", 19, "x.piece"),
    "while loops": _nested("while vllm.LLM('m'):", 40, "vllm.LLN"),
    "links": "x = {}\nx" + ".get('a')" * 40,
    "pairs": "a = (vllm.LLM('m'), 2)\n" + "a = (a, a)\n" * 200 + "a.x",
    "calls": "def f0(x): return vllm.LLM('m')\n"
    + "\n".join(f"def f{i}(x): return f{i - 1}(f{i - 1}(x)) if x else f{i - 1}(x)" for i in range(1, 60)),
    "alternatives": "x = " + " or ".join(["vllm.LLM('m')"] * 2000),
}


@pytest.mark.parametrize("name", BRANCHING)
def test_code_that_branches_without_end_is_followed_once(write, monkeypatch, name):
    monkeypatch.setattr(infer, "MOST_STEPS", 200_000)  # each takes a tenth of it at most
    caller = open_source("speculators", str(write({"s.py": f"import vllm\n{BRANCHING[name]}\n"}, "c") / "s.py"))
    audit(caller, [open_source("vllm", str(write(API)))], ())


def test_what_cannot_be_followed_in_reasonable_time_is_refused(write, monkeypatch):
    monkeypatch.setattr(infer, "MOST_STEPS", 10_000)
    text = "vllm"
    for _ in range(40):
        text = f"(1 if ({text}).a else 2)"
    caller = open_source("speculators", str(write({"s.py": f"import vllm\ny = {text}\n"}, "c") / "s.py"))
    with pytest.raises(UsageError, match="simple enough"):
        audit(caller, [open_source("vllm", str(write(API)))], ())


def test_a_class_that_has_thousands_of_bases_is_followed(write):
    bases = "\n".join(f"class C{i}(C{i - 1}): ..." for i in range(1, 2000))
    api = {**API, "vllm/outputs.py": f"class C0: ...\n{bases}\nclass Output(C1999): ...\n"}
    caller = open_source(
        "speculators", str(write({"s.py": "from vllm.outputs import Output\nOutput().x"}, "c") / "s.py")
    )
    report = audit(caller, [open_source("vllm", str(write(api)))], ())
    assert [finding.name for finding in report.findings] == ["x"]


def test_a_source_line_is_cut_and_cannot_steer_the_terminal(found, write):
    script = "import vllm\nvllm.LLN  # \x1b[2J" + "x" * 100_000
    caller = open_source("speculators", str(write({"s.py": script}, "c") / "s.py"))
    (finding,) = audit(caller, [open_source("vllm", str(write(API)))], ()).findings
    assert len(finding.site.code) == 200
    assert "\x1b" not in finding.site.code


def test_links_that_lead_in_a_circle_and_files_that_are_none_are_left_out(write):
    api = write(API)
    (api / "vllm" / "again").symlink_to("../vllm")
    (api / "vllm" / "loop.py").symlink_to("loop.py")
    os.mkfifo(api / "vllm" / "pipe.py")
    (api / "vllm" / "folder.py").mkdir()
    with open(os.fsencode(api / "vllm") + b"/\xff.py", "wb"):  # noqa: PTH123 (no pathlib of bytes)
        pass
    assert open_source("vllm", str(api)).paths() == open_source("vllm", str(write(API, "plain"))).paths()


@pytest.mark.parametrize("where", ["x" * 5000, "~nobody-of-this-name", "a\nb", "\udcff", " "])
def test_a_name_that_can_be_no_path_is_refused(where):
    with pytest.raises(UsageError, match="none of them"):
        open_source("vllm", where)


def test_what_cannot_be_read_is_refused(write, monkeypatch):
    api = open_source("vllm", str(write(API)))
    caller = open_source("speculators", str(write({"s.py": "from vllm.outputs import Output"}, "c") / "s.py"))

    def refuse(name, *arguments, **options):
        if str(name).endswith("outputs.py"):
            raise PermissionError(13, "Permission denied", name)
        return open(name, *arguments, **options)  # noqa: PTH123

    monkeypatch.setattr(sources, "open", refuse, raising=False)
    with pytest.raises(UsageError, match=r"outputs.py: Permission denied"):
        audit(caller, [api], ())


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_with_broken_members_is_refused(tmp_path, write, method):
    path = tmp_path / "vllm-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", method) as wheel:
        for name, text in {**API, "vllm/outputs.py": "class Output: ...\n" * 99}.items():
            wheel.writestr(name, textwrap.dedent(text))
    content = bytearray(path.read_bytes())
    at = content.find(b"vllm/outputs.py") + len("vllm/outputs.py")
    content[at : at + 12] = b"\xff" * 12
    path.write_bytes(content)
    caller = open_source("speculators", str(write({"s.py": "from vllm.outputs import Output"}, "c") / "s.py"))
    with pytest.raises(UsageError, match="must be readable"):
        audit(caller, [open_source("vllm", str(path))], ())


@pytest.mark.parametrize("out", [".", "no/such/folder/out.json"])
def test_a_result_that_cannot_be_written_is_one_line(write, out):
    caller = write({"script.py": "from vllm import LLM"}, "caller")
    done = _command(str(caller / "script.py"), "--vllm", str(write(API)), "--out", out)
    assert done.returncode == 2
    assert [line[:7] for line in done.stderr.splitlines()] == ["Error: "]


def test_a_huge_file_is_refused(write, monkeypatch):
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 1000)
    caller = open_source("speculators", str(write({"s.py": "from vllm.outputs import Output"}, "c") / "s.py"))
    api = write({**API, "vllm/outputs.py": "#" * 1001})
    with pytest.raises(UsageError, match="1001 bytes"):
        audit(caller, [open_source("vllm", str(api))], ())


def _wheel(path, names):
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in names.items():
            wheel.writestr(name, textwrap.dedent(text))
    return path


def test_a_wheel_is_read_in_place(tmp_path, write):
    wheel = _wheel(tmp_path / "vllm-1.2.0-py3-none-any.whl", API)
    caller = open_source("speculators", str(write({"s.py": "from vllm import LLM, LLN"}, "c") / "s.py"))
    report = audit(caller, [open_source("vllm", str(wheel))], ())
    assert [finding.name for finding in report.findings] == ["LLN"]
    assert report.apis[0].release == "1.2.0"


@pytest.mark.parametrize(
    "name", ["../vllm/evil.py", "/vllm/evil.py", "vllm/../../evil.py", "C:/evil.py", "..\\evil.py"]
)
def test_a_wheel_with_paths_outside_its_root_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="inside its root"):
        open_source("vllm", str(_wheel(tmp_path / "vllm-1-py3-none-any.whl", {**API, name: ""})))


def test_what_is_no_wheel_no_folder_and_no_release_is_refused(tmp_path):
    (tmp_path / "x.whl").write_text("text")
    (tmp_path / "empty").mkdir()
    for where in ("x.whl", "empty", "absent"):
        with pytest.raises(UsageError):
            open_source("vllm", str(tmp_path / where))
    with pytest.raises(UsageError, match="must hold the package vllm"):
        open_source("vllm", str(_wheel(tmp_path / "other-1-py3-none-any.whl", {"other/__init__.py": ""})))


def test_code_that_never_names_vllm_is_refused(write):
    caller = open_source("speculators", str(write({"s.py": "x = 1"}, "c") / "s.py"))
    with pytest.raises(UsageError, match="must use vllm"):
        audit(caller, [open_source("vllm", str(write(API)))], ())


def test_exit_codes(write):
    api = str(write(API))
    scripts = write({"good.py": "from vllm import LLM", "bad.py": "from vllm import LLN"}, "c")
    assert [_command(str(scripts / name), "--vllm", api).returncode for name in ("good.py", "bad.py")] == [0, 1]
    assert _command(str(scripts / "good.py"), "--vllm", api, "--json", "--sarif").returncode == 2
