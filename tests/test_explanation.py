"""`explain`: which side a product takes, and why."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import clgemm
from clgemm.side import preparation
from clgemm.side.clock import Clock


@pytest.fixture
def by_measured_times(monkeypatch, tmp_path):
    """What users have: measured times decide, and nothing is prepared, or known of earlier runs."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(preparation, "clock", Clock())
    monkeypatch.setenv("CLGEMM_PREPARE", "never")
    monkeypatch.setattr(preparation, "state", preparation.State())


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([[1.0]], np.ones((1, 1), "f"), "not two of NumPy's own arrays"),
        (np.ones((5, 5), "f"), np.ones((5, 5), "f"), "less than any device's call"),
        (np.ones((5, 6), "f"), np.ones((5, 6), "f"), "the shapes do not fit"),
        (np.ones((5, 5), "i4"), np.ones((5, 5), "i4"), "int32 and int32 of these sizes"),
        (np.ones((99, 99)), np.ones((99, 99)), "float64 and float64 of these sizes"),
        (np.ones((203, 203), "f"), np.ones((203, 203), "f"), "not known yet"),
        (np.ones((203, 203), "i4"), np.ones((203, 203), "i4"), "not known yet"),
    ],
)
def test_why_numpy_computes_a_product(by_measured_times, a, b, reason):
    """Arrays of other types, sizes, shapes and dtypes, and what is not measured yet."""
    found = clgemm.explain("@", a, b)
    assert (found.side, found.calls) == ("host", 0)
    assert reason in found.reason
    assert str(found).startswith("side: host (")


def test_the_times_of_both_sides_are_named(device, by_measured_times):
    """NumPy's as measured; the device's once it is known."""
    a = np.ones((307, 307), np.int32)
    for _ in range(3):
        clgemm.matmul(a, a)
    found = clgemm.explain("matmul", a, a)
    assert found.calls == 3
    assert found.host.us > 0
    assert found.host.source.startswith("measured")
    assert found.device.source == "unknown"
    assert len(str(found._replace(preparing="")).splitlines()) == 4
    assert str(found._replace(preparing="preparing: 1 part")).endswith("\npreparing: 1 part")
    shown = found._replace(preparing="1 part is < half done")._repr_html_()
    calls = "made before, by this process: 3 times"
    assert shown.startswith(f"<p>host ({found.reason}); {calls}; 1 part is &lt; half")
    assert f"<tr><td>host</td><td>{found.host.us:,.0f} µs</td><td>measured, " in shown
    assert "<tr><td>device</td><td></td><td>unknown</td></tr>" in shown


def test_a_rule_and_a_wrong_name_are_said(device, monkeypatch):
    """A threshold goes before all times."""
    a = np.ones((300, 300), np.float32)
    assert clgemm.explain("dot", a, a).side == "device"
    monkeypatch.setenv("CLGEMM_SIDE", "host")
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    found = clgemm.explain("inner", a, a)
    assert (found.side, found.reason) == ("host", "as CLGEMM_THRESHOLD or CLGEMM_SIDE says")
    with pytest.raises(ValueError, match="function='outer' is not one of"):
        clgemm.explain("outer", a, a)


PROGRAM = """
import clgemm, numpy as np
a = np.ones((300, 300), np.int32)
for _ in range(40):
    clgemm.matmul(a, a)
"""
ANOTHER = """
import clgemm, numpy as np
a = np.ones((310, 310), np.int32)
print(clgemm.explain("matmul", a, a))
"""


def test_times_of_earlier_programs_are_told(by_measured_times):
    """Another program's NumPy made products like this one."""
    run = partial(subprocess.run, check=True, capture_output=True, text=True, timeout=300)
    run([sys.executable, "-c", PROGRAM])
    told = run([sys.executable, "-c", ANOTHER]).stdout
    assert re.search(r"^host: [\d,]+ us, from products like it$", told, re.MULTILINE), told


AGAIN = """
import clgemm, numpy as np
from clgemm.side import preparation
a = np.ones((300, 300), np.int32)
for _ in range(40):
    clgemm.matmul(a, a)
print(len(preparation.state._products))
"""


def test_a_script_knows_its_last_run(by_measured_times, tmp_path):
    """Also without the launcher; another script does not."""
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    for script in (one, other):
        script.write_text(AGAIN)
    run = partial(subprocess.run, check=True, capture_output=True, text=True, timeout=300)
    found = [run([sys.executable, str(script)]).stdout.strip() for script in (one, one, other)]
    assert found == ["0", "1", "0"]
