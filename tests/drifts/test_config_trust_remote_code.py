import pytest

pytestmark = pytest.mark.engine

REFUSED = "max_model_len=128, trust_remote_code=False"


def test_remote_code_that_is_refused_does_not_run(run_generator, tiny_kimi, tmp_path):
    """The folder's config leaves a mark when its code runs."""
    import shutil

    mark = tmp_path / "ran"
    model = tmp_path / "kimi"
    shutil.copytree(tiny_kimi, model)
    for file in model.glob("configuration*.py"):
        file.write_text(file.read_text() + f"\nopen({str(mark)!r}, 'w').close()\n")
    done = run_generator(model=model, arguments=REFUSED)
    assert done.returncode != 0 and "trust_remote_code" in done.stderr
    assert not mark.exists()
    run_generator("config_trust_remote_code", model=model, arguments=REFUSED)
    assert mark.exists(), "without the drift it runs although it was refused"
