"""Every cached function of the package is forgotten with the plans, or has a reason not to be."""

from __future__ import annotations

import functools
import importlib
import importlib.util

from test_imports import MODULES

from clgemm.core import caches

# Caches that `forget_plans` leaves as they are, and why.
PURE = "the result depends on the arguments only"
SHIPPED = "the files of installed packages do not change"
DEVICES = "users hold these devices and queues, and what belongs to them"
MACHINE = "the processor and its memory stay the same"
ONCE = "a message is logged once, or a folder is made once"
PROGRAM = "a program's name and arguments stay the same, and so does its machine"
NUMPY = "what NumPy was before it was patched; uninstalling puts it back"
KEPT = {
    "accel.patches._signatures": NUMPY,
    "accel.session._patches": NUMPY,
    "accel.session._replacements": NUMPY,
    "bench.host_blas_peers._library": SHIPPED,
    "core.cache.warn_once": ONCE,
    "core.host_blas._blas_name": SHIPPED,
    "core.host_blas._pools": SHIPPED,
    "core.host_blas.blas_label": SHIPPED,
    "core.host_blas.has_avx512": MACHINE,
    "core.layout.dense_layout": PURE,
    "core.transfer.make_stream": PURE,
    "hardware.choice._why_no_device": DEVICES,
    "hardware.device.present": DEVICES,
    "hardware.device.wrapped": DEVICES,
    "hardware.diagnosis._why_not_loaded": DEVICES,
    "hardware.identity._processor": MACHINE,
    "hardware.runtimes._temporary_folder": ONCE,
    "hardware.runtimes.installed": SHIPPED,
    "planning.planner.copy_plan_of": PURE,
    "planning.transfers._default_config": MACHINE,
    "records.lookup.shipped": SHIPPED,
    "records.record.kernels_hash": PURE,
    "records.verdicts._all_kernels": PURE,
    "records.verified.all_verified": SHIPPED,
    "records.verified.verified_hash": PURE,
    "runtime.operands._device_layout": PURE,
    "runtime.operands._unallocated": DEVICES,
    "runtime.results._most_bytes": MACHINE,
    "runtime.transfer.route._route": PURE,
    "runtime.workspace.workspace": DEVICES,
    "side.preparation._machine": PROGRAM,
    "side.preparation._warn_once": ONCE,
    "side.settings._rule": PURE,
    "side.settings.quick_rule": PURE,
    "runtime.programs._require_pyopencls_cache": ONCE,
}
# Pure: a function there depends on its arguments, and on source files of the package.
PURE_PACKAGE = "kernels."
CACHED = type(functools.cache(int))


def cached_functions():
    """Each function of the package that functools caches, by its module and name."""
    for module in MODULES:
        if module.rpartition(".")[2] == "__main__":
            continue
        if module.partition(".")[0] == "dask" and not importlib.util.find_spec("distributed"):
            continue  # its extra is not installed
        name = "clgemm" if module == "__init__" else f"clgemm.{module}"
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, CACHED) and value.__module__ == name:
                yield f"{module}.{attribute}", value


def test_every_cached_function_is_forgotten_or_has_a_reason_to_stay():
    """A new cache is registered with `forgettable`, or stands in `KEPT` with its reason."""
    found = dict(cached_functions())
    forgotten = {name for name, cached in found.items() if cached.cache_clear in caches._clearers}
    assert forgotten.isdisjoint(KEPT)
    others = {name for name in found if not name.startswith(PURE_PACKAGE)} - forgotten
    assert others == set(KEPT)


def test_caches_of_configs_are_forgotten():
    """Those that a better config, a record or a verdict puts out of date."""
    found = dict(cached_functions())
    expected = {
        *("planner.plan_of", "planner.choose", "planner.choice_of", "planner.make_plan"),
        *("planner.instructions_of", "serving.tuned"),
    }
    for name in expected:
        assert found[f"planning.{name}"].cache_clear in caches._clearers


def test_forgetting_empties_what_is_registered():
    """A function computes anew, and a cache of another kind is cleared, in the order registered."""
    made, cleared = [], []
    cached = caches.forgettable(functools.cache(made.append))
    caches.on_forget(lambda: cleared.append(list(made)))
    try:
        for _ in range(2):
            cached(1)
        caches.forget_plans()
        cached(1)
    finally:
        del caches._clearers[-2:]
    assert made == [1, 1]
    assert cleared == [[1]]


def test_notes_are_bounded():
    """With as many as allowed, all are dropped, and the newest is kept."""
    notes = {}
    for number in range(5):
        caches.note(notes, number, str(number), 2)
        assert notes[number] == str(number)
    assert notes == {4: "4"}
