"""Two engines on one data set: each writes its part at the same time, and the folder is what one engine writes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from speculators_compat.demo import prepare_demo
from speculators_compat.pipeline.config import load_config
from speculators_compat.store import verify
from tests.e2e.test_pipeline import COMMAND, FILES, LIMIT_S, cli, edit, files
from tests.rows import write_rows

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SAMPLES = 25


def same(one: Path, two: Path) -> None:
    """Both data folders hold the same samples, bit for bit."""
    for index in range(SAMPLES):
        assert FILES.path(one, index).read_bytes() == FILES.path(two, index).read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Configuration whose data one engine has extracted."""
    path = prepare_demo(tmp_path_factory.mktemp("shards") / "demo", kind="llama")
    # One prompt a step: the rounding of a row depends on what is computed beside it.
    extract = {"dtype": "float32", "prompts_per_call": 1}
    path = edit(path, "alone", extract=extract)
    write_rows(load_config(path), SAMPLES)
    done = cli("extract", path)
    assert done.returncode == 0, done.stderr[-3000:]
    return path


@pytest.fixture(scope="module")
def shared(alone):
    """The same with two engines at a time under torchrun, as docs/pipeline.md says, and what they left."""
    path = edit(alone, "shared", output=str(load_config(alone).output.with_name("shared")))
    write_rows(load_config(path), SAMPLES)
    engine = f"exec env -u TORCHELASTIC_USE_AGENT_STORE {shlex.join([*COMMAND, 'extract', str(path)])}"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    done = subprocess.run(
        [*launch, "sh", "-c", f"{engine} --shard $RANK/$WORLD_SIZE"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return path, files(load_config(path))


def test_the_folder_is_that_of_one_engine_bit_for_bit(alone, shared):
    path, written = shared
    one, two = load_config(alone).data_dir, load_config(path).data_dir
    assert len(written) == SAMPLES
    same(one, two)


def test_each_engine_wrote_its_own_part(shared):
    reports = [json.loads((load_config(shared[0]).steps_dir / f"extract-{i}-of-2.json").read_text()) for i in (0, 1)]
    assert [report["extracted"] for report in reports] == [13, 12]


def test_a_part_that_lost_a_sample_goes_on_and_the_folder_is_completed(shared):
    path, written = shared
    config = load_config(path)
    lost = FILES.path(config.data_dir, 3)
    lost.unlink()
    assert cli("extract", path, "--shard", "0/2").returncode == 0
    assert not lost.exists(), "it belongs to the other part"
    assert cli("extract", path, "--shard", "1/2").returncode == 0
    now = files(config)
    assert {name for name in written if now[name] != written[name]} == {lost.name}
    assert not (config.data_dir / "sample_lengths.json").exists()
    done = cli("extract", path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "0 to extract" in done.stderr
    assert files(config) == now
    assert verify(config.data_dir) == []


def test_bad_parts_are_refused(shared):
    refused = cli("extract", shared[0], "--shard", "2/2")
    assert refused.returncode == 2
    assert "I/N" in refused.stderr


def test_ray_starts_the_parts_and_completes_the_folder(alone):
    pytest.importorskip("ray", reason="needs the extra `ray`: https://pypi.org/project/ray/")
    path = edit(alone, "ray", output=str(load_config(alone).output.with_name("ray")))
    write_rows(load_config(path), SAMPLES)
    done = cli("extract", path, "--ray", "2")
    assert done.returncode == 0, done.stderr[-5000:]
    one, two = load_config(alone).data_dir, load_config(path).data_dir
    same(one, two)
    assert verify(two) == []
    refused = cli("extract", path, "--ray", "2", "--shard", "0/2")
    assert refused.returncode == 2
    assert "Leave one out" in refused.stderr
