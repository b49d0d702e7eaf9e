"""States, hooks that never raise, tripwires, late import, and switches: on a fake upstream in fresh interpreters.

Each case runs in a subprocess, because activation patches whatever its process has imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
    import json, logging, sys
    logging.basicConfig(format="%(message)s")
    import os
    from speculators_compat import activation, drifts, matrix, versions
    from speculators_compat.drift import Drift, DriftError, State, substitute, supply, wrap

    def loud(wrapped, instance, args, kwargs):
        return "mended " + wrapped(*args, **kwargs)

    def record(id, sites=None, **kwargs):
        facts = dict(title=id, symptom="boom", call_site="x", speculators=">=0.3", since="0.11.0", until=None,
                     upstream="https://example.org", tripwire="fakeup.mod:entry",
                     sites=sites or (wrap("fakeup.mod:call", loud),))
        facts.update(kwargs)
        return Drift(id=id, **facts)

    def use(*found, vllm="0.16.0", speculators="0.3.0"):
        activation.catalogue = lambda: found
        known = {"vllm": vllm, "speculators": speculators}
        def installed(name):
            return versions.Installed(name, name, known[name]) if known.get(name) else None
        activation.versions = type("V", (), dict(
            installed=staticmethod(installed), in_range=staticmethod(versions.in_range),
            matches=staticmethod(versions.matches)))
        activation.activate()

    def states():
        return {o.drift.id: (o.state.value, o.reason) for o in activation.outcomes()}
"""


def run(tmp_path: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    package = tmp_path / "fakeup"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "mod.py").write_text("def call():\n    return 'original'\n\ndef entry():\n    return call()\n")
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(body)
    env = {**os.environ, **environment}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)


def check(tmp_path: Path, body: str, **environment: str) -> str:
    done = run(tmp_path, body, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_waits_for_the_import_then_applies_then_undoes(tmp_path):
    check(
        tmp_path,
        """
        use(record("one"))
        assert states()["one"][0] == "waiting"
        from fakeup.mod import call          # the hook runs before the name is bound
        import fakeup.mod as mod
        assert call() == "mended original" and states()["one"][0] == "applied"
        patched = mod.call
        activation.activate()
        assert mod.call is patched           # twice is once
        activation.deactivate()
        assert mod.call() == "original" and type(mod.call).__name__ == "function"
        assert states()["one"][0] == "off"
        activation.activate()
        assert mod.call() == "mended original"
        """,
    )


def test_importing_late_patches_what_is_there_and_says_so_once(tmp_path):
    out = check(
        tmp_path,
        """
        import fakeup.mod as mod
        use(record("one"))
        assert mod.call() == "mended original"
        activation.deactivate(); activation.activate()
        """,
    )
    assert out.count("was imported before speculators_compat") == 1


def test_a_broken_drift_breaks_no_import_and_nothing_is_half_applied(tmp_path):
    out = check(
        tmp_path,
        """
        def broken(original):
            raise LookupError("planted")
        sites = (wrap("fakeup.mod:call", loud), substitute("fakeup.mod:entry", broken))
        use(record("bad", sites=sites), record("good"))
        import fakeup.mod as mod
        assert mod.call() == "mended original"          # by the good one alone
        assert states()["good"][0] == "applied"
        assert states()["bad"] == ("blocked", "LookupError: planted"), states()
        try:
            mod.entry()
        except DriftError as error:
            print(error)
        else:
            raise SystemExit("the tripwire did not raise")
        activation.deactivate()
        assert mod.call() == mod.entry() == "original"
        """,
    )
    for part in ("[bad]", "planted", "vllm 0.16.0, speculators 0.3.0", "SPECULATORS_COMPAT_DISABLE=bad", "doctor"):
        assert part in out


def test_a_probe_that_raises_blocks(tmp_path):
    check(
        tmp_path,
        """
        def probe():
            raise AttributeError("gone")
        use(record("one", probe=probe))
        import fakeup.mod
        assert states()["one"] == ("blocked", "AttributeError: gone")
        """,
    )


def test_a_missing_site_blocks_and_names_it(tmp_path):
    check(
        tmp_path,
        """
        use(record("one", sites=(wrap("fakeup.mod:renamed", loud),)))
        import fakeup.mod
        assert states()["one"] == ("blocked", "fakeup.mod:renamed does not exist")
        """,
    )


@pytest.mark.parametrize(
    ("vllm", "probe", "since", "state"),
    [
        ("0.16.0", "True", "0.11.0", "applied"),
        ("0.16.0", "False", "0.17.0", "not needed"),
        ("0.16.0", "False", "0.11.0", "blocked"),  # a tested release: the record is wrong, nobody guesses
        ("0.16.0", "True", "0.17.0", "blocked"),
        ("0.16.0rc2.dev344+gea5f903f8", "False", "0.16.0", "not needed"),  # a nightly: the probe decides
        ("0.16.0rc2.dev344+gea5f903f8", "True", "0.17.0", "applied"),
        ("0.16.0+acme.1", "True", "0.17.0", "applied"),  # a fork
        ("0.99.0", "False", "0.11.0", "not needed"),  # newer than any tested release
        ("not a version", "True", "0.11.0", "applied"),
        ("0.16.0", "None", "0.11.0", "applied"),  # no probe: the range alone
        ("0.16.0", "None", "0.17.0", "not needed"),
        ("0.16.0", "False", None, "not needed"),  # bound by no release
    ],
)
def test_probe_and_range(tmp_path, vllm, probe, since, state):
    out = check(
        tmp_path,
        f"""
        answer = {probe}
        use(record("one", since={since!r}, probe=None if answer is None else lambda: answer), vllm={vllm!r})
        import fakeup.mod
        print(json.dumps(states()["one"]))
        """,
    )
    assert f'["{state}", ' in out
    assert ("newer than any tested" in out) == (vllm == "0.99.0")


def test_speculators_outside_the_range_does_not_need_it(tmp_path):
    check(
        tmp_path,
        """
        use(record("one", speculators=">=0.4.0,<0.5"))
        import fakeup.mod
        assert states()["one"] == ("not needed", "speculators 0.3.0 is not in >=0.4.0,<0.5")
        """,
    )


def test_a_drift_whose_requirement_is_off_is_blocked(tmp_path):
    check(
        tmp_path,
        """
        use(record("one", requires=("two",)), record("two"))
        import fakeup.mod
        assert states()["two"][0] == "off" and states()["one"][0] == "blocked"
        """,
        SPECULATORS_COMPAT_DISABLE="two",
    )


def test_switches(tmp_path):
    out = check(
        tmp_path,
        """
        use(record("one"), record("two"))
        import fakeup.mod as mod
        assert states()["one"][0] == "off" and states()["two"][0] == "applied"
        assert mod.call() == "mended original"
        """,
        SPECULATORS_COMPAT_DISABLE="one, no_such_drift",
    )
    assert "unknown drifts: no_such_drift" in out
    check(
        tmp_path,
        """
        os.environ["SPECULATORS_COMPAT"] = "0"
        use(record("one"))
        import fakeup.mod as mod
        assert mod.call() == "original" and states()["one"] == ("off", "SPECULATORS_COMPAT=0")
        """,
    )


def test_a_drift_error_survives_pickling(tmp_path):
    import pickle

    from speculators_compat import DriftError

    error = pickle.loads(pickle.dumps(DriftError("id", "a", "b", "c")))
    assert (error.drift_id, str(error)) == ("id", str(DriftError("id", "a", "b", "c")))


def test_the_plugin_activates_the_shim(tmp_path):
    check(
        tmp_path,
        """
        from speculators_compat import plugin, trigger
        trigger.disarm()
        del sys.modules["speculators_compat"]      # as in a process where nothing has imported it yet
        plugin.register()
        assert trigger._trigger in sys.meta_path or activation.is_active()
        """,
    )


def test_nothing_is_read_until_speculators_is_imported(tmp_path):
    (tmp_path / "speculators").mkdir()
    (tmp_path / "speculators" / "__init__.py").write_text(
        "import speculators_compat.activation as a; SEEN = a.is_active()"
    )
    code = """
        import sys, speculators_compat
        assert "wrapt" not in sys.modules and "speculators_compat.activation" not in sys.modules
        import speculators
        assert speculators.SEEN and "wrapt" in sys.modules
        assert not any(type(f).__name__ == "_Trigger" for f in sys.meta_path)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=env)


def test_a_package_that_is_not_installed_still_fails_as_it_should(tmp_path):
    code = """
        import speculators_compat
        try:
            import speculators.no_such_module
        except ModuleNotFoundError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert "No module named 'speculators" in done.stdout


def test_asking_for_speculators_while_the_trigger_is_armed_ends():
    """Activation asks what is installed, and where speculators is not, that goes through the trigger again."""
    code = """
        import importlib.util, speculators_compat
        speculators_compat.activate()
        from speculators_compat import trigger
        trigger.arm()
        importlib.util.find_spec("speculators")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)


def test_a_drift_is_settled_after_what_it_needs(tmp_path):
    check(
        tmp_path,
        """
        def broken():
            raise LookupError("planted")
        use(record("a", requires=("b",)), record("b", probe=broken))
        import fakeup.mod
        assert states()["b"][0] == "blocked" and states()["a"][0] == "blocked", states()
        """,
    )


def test_states_do_not_switch_anything_on_after_deactivate(tmp_path):
    check(
        tmp_path,
        """
        activation.catalogue = lambda: (record("one"),)
        activation.deactivate()
        import fakeup.mod as mod
        assert activation.outcomes() == () and mod.call() == "original"
        """,
    )
