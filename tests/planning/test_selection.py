"""Tests of the choice of the side: the environment's settings and the default rules."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from planned import TWO_CORES

import clgemm
from clgemm.core.cpu_costs import INTEL, POCL, POCL_MANY_CORES
from clgemm.core.host_blas import blas_kernels
from clgemm.core.traits import Traits
from clgemm.core.transfer_config import TransferConfig
from clgemm.hardware.traits import register_width
from clgemm.planning import cpu_choice, selection
from clgemm.planning.crossovers import Measured, Work
from clgemm.planning.host_times import BatchKind


@pytest.fixture
def cpu(monkeypatch):
    """A CPU device that reads in place, beside OpenBLAS's kernels with AVX-512 on few cores."""
    how = {"is_vector_compiler": True, "register_width": 16, "is_amd": True}
    traits = Traits(TWO_CORES, "CPU", **how)
    stand = SimpleNamespace(kind="CPU", traits=traits, transfer=None, shares_host_memory=True)
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", lambda: stand)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    monkeypatch.setattr(selection, "blas_kernels", lambda: "SkylakeX")
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    monkeypatch.setattr(cpu_choice, "has_avx512", lambda: True)
    monkeypatch.setattr(cpu_choice, "is_openblas", lambda: True)
    monkeypatch.setattr(cpu_choice, "usable_processors", lambda: 2)
    return stand


def test_the_threshold_must_be_a_number(monkeypatch):
    """A CLGEMM_THRESHOLD that is no number raises an error that names it."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "lots")
    with pytest.raises(ValueError, match="CLGEMM_THRESHOLD='lots' is not a whole number"):
        clgemm.dot(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e6", 10**6),
        (" 1000000 ", 10**6),
        ("2.5e3", 2500),
        ("0.0", 0),
        (str(2**63 + 1), 2**63 + 1),
    ],
)
def test_the_threshold_is_taken_in_any_notation(text, number, monkeypatch):
    """CLGEMM_THRESHOLD may be a whole number in any notation, and keeps all its digits."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", text)
    assert selection.threshold() == number


@pytest.mark.parametrize("text", ["1.5", "-1", "-1e6", "1e400", "inf", "nan", "abc", "1e-3", "1,0"])
def test_what_is_no_whole_number_is_no_threshold(text, monkeypatch):
    """A CLGEMM_THRESHOLD that is negative, infinite, a fraction or a word is refused by name."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", text)
    with pytest.raises(ValueError, match=f"CLGEMM_THRESHOLD='{text}' is not a whole number"):
        selection.threshold()


def test_the_default_crossover(device, monkeypatch):
    """By default the host makes small and skinny products, and a fast device large ones."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    assert selection.host_is_faster(10, 10, 10, 1)
    assert selection.host_is_faster(10_000, 1, 10_000, 1)
    wins = device.kind != "CPU" or (
        device.platform.startswith(("Portable Computing Language", "Intel"))
        and register_width(device) == 16
        and not ("AMD" in device.cl_device.name and blas_kernels() in selection.AVX512_KERNELS)
    )
    assert selection.host_is_faster(5000, 5000, 5000, 1) == (not wins)


@pytest.mark.parametrize(
    ("sizes", "host"),
    [
        ((999, 1000, 1000, 1), True),
        ((1200, 1200, 1200, 1), False),
        ((4096, 96, 4096, 1), True),  # the way there takes longer than the host
        ((4096, 600, 4096, 1), False),
        ((256, 256, 65536, 1), False),
        ((160, 160, 65536, 1), True),
        ((128, 128, 128, 10), True),
        ((128, 128, 128, 200), False),
        ((128, 128, 128, 1000), False),
        ((4096, 16, 4096, 100), True),
    ],
)
def test_the_crossover_of_a_device_that_operands_are_copied_to(sizes, host, monkeypatch):
    """With transfers, the device needs enough work, and enough for each copied element."""

    class Stand:
        kind, shares_host_memory, transfer = "GPU", False, None
        cl_device = SimpleNamespace(global_mem_size=2**34)

    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    assert selection.host_is_faster(*sizes) == host


def test_no_device_is_refused_by_the_crossover_of_another_kind(monkeypatch):
    """A product that a CPU makes faster is not kept for being too small for a GPU."""

    class Stand:
        kind, shares_host_memory, transfer = "CPU", True, None
        traits = Traits(TWO_CORES, "CPU", register_width=16, is_vector_compiler=True)

    monkeypatch.setattr(cpu_choice, "may_suit", lambda *_: False)
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    assert selection.CROSSOVER["CPU"] < 900**3 < selection.CROSSOVER["GPU"]
    assert not selection.host_is_faster(900, 900, 900, 1)
    assert selection.CROSSOVER["CPU"] >= selection.SMALLEST_CROSSOVER


@pytest.mark.parametrize(
    ("kind", "is_vector_compiler", "least_us"),
    [
        ("CPU", True, cpu_choice.call_us(TWO_CORES.cpu_costs)),
        ("CPU", False, math.inf),
        ("GPU", True, 72),
    ],
)
def test_numpy_that_sums_element_by_element_is_slow(
    kind, is_vector_compiler, least_us, monkeypatch
):
    """A device pays once NumPy takes longer than its call."""

    class Stand:
        shares_host_memory, transfer = kind == "CPU", None
        traits = Traits(TWO_CORES, kind, register_width=16, is_vector_compiler=is_vector_compiler)
        cl_device = SimpleNamespace(global_mem_size=2**34)

    Stand.kind = kind
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    for microseconds in (1, cpu_choice.LEAST_CALL_US, 60, 70, 75, 1e6):
        host = selection.host_is_faster(10, 20, 5, 1, element_us=microseconds / 200)
        assert host == (microseconds < max(least_us, cpu_choice.LEAST_CALL_US))


@pytest.mark.parametrize(("sizes", "host"), [((119, 3, 127, 875), False), ((9, 37, 17, 658), True)])
@pytest.mark.parametrize("measured", [None, "stack-32", "stack-128"])
def test_a_gpu_makes_long_loops_of_numpy(sizes, host, measured, monkeypatch):
    """Also of short sides, unless a measured crossover of their kind says otherwise."""

    class Stand:
        kind, shares_host_memory, transfer = "GPU", False, None
        cl_device = SimpleNamespace(global_mem_size=2**34)

    found = Measured({measured: None} if measured else {}, "today")
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    monkeypatch.setattr(selection, "measured", lambda _: found)
    assert selection.host_is_faster(*sizes, kind=BatchKind.FOLDED) == host
    long = (200, 40, 100, 3000)
    assert selection.host_is_faster(*long, kind=BatchKind.FOLDED) == (measured == "stack-32")


@pytest.mark.parametrize(
    ("sizes", "kind", "host"),
    [
        ((768, 768, 768), "CPU", False),
        ((768, 768, 767), "CPU", True),
        ((384, 384, 8192), "CPU", False),
        ((383, 8192, 8192), "CPU", True),
        ((8192, 383, 8192), "CPU", True),
        ((1000, 1000, 1000), "GPU", False),
        ((1000, 1000, 999), "GPU", True),
        ((16384, 16384, 8), "GPU", False),
        ((16384, 16384, 7), "GPU", True),
        ((8, 16384, 16384), "GPU", False),
        ((7, 16384, 16384), "GPU", True),
        ((16384, 7, 16384), "GPU", True),
    ],
)
def test_a_device_wins_from_its_bounds_on(sizes, kind, host, monkeypatch):
    """A device without transfers makes products at the bounds of the rules, and no smaller one."""

    class Stand:
        shares_host_memory, transfer = True, None
        traits = Traits(TWO_CORES, "CPU", register_width=16, is_vector_compiler=True)

    Stand.kind = kind
    monkeypatch.setattr(cpu_choice, "may_suit", lambda *_: False)
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    assert selection.host_is_faster(*sizes, 1) == host


@pytest.mark.parametrize(
    ("is_amd", "kernels", "host"),
    [
        (True, "SkylakeX", True),
        (True, "Haswell", False),
        (True, "", False),
        (False, "SkylakeX", False),
    ],
)
def test_openblas_keeps_what_it_makes_faster_on_amds_processors(
    is_amd, kernels, host, cpu, monkeypatch
):
    """Its kernels with AVX-512 are; where it does not know the processor, it has others."""
    cpu.traits = replace(cpu.traits, is_amd=is_amd)
    monkeypatch.setattr(selection, "blas_kernels", lambda: kernels)
    assert selection.host_is_faster(2000, 2000, 2000, 1) == host


@pytest.mark.parametrize(
    ("elements", "kind", "is_vector_compiler", "transfer", "host"),
    [
        (2**16 - 1, "CPU", True, False, True),
        (2**16, "CPU", True, False, False),
        (2**16, "CPU", False, False, True),
        (2**17 - 1, "GPU", False, True, True),
        (2**17, "GPU", False, True, False),
    ],
)
def test_what_numpy_makes_in_a_loop_goes_to_a_device(
    elements, kind, is_vector_compiler, transfer, host, monkeypatch
):
    """A CPU that emulates lanes gets none of it. A GPU needs more elements."""
    traits = Traits(TWO_CORES, kind, is_vector_compiler=is_vector_compiler)
    cl_device = SimpleNamespace(global_mem_size=2**34)
    stand = SimpleNamespace(
        kind=kind,
        traits=traits,
        transfer=None,
        cl_device=cl_device,
        shares_host_memory=not transfer,
    )
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", lambda: stand)
    assert selection.host_is_faster(elements, 1, 1, 1, by_loop=True) == host
    assert selection.host_is_faster(elements, 1, 1, 1)


FOR_CPUS = [(15, 2048, 1024, 1), (16, 400, 3000, 1), (200, 200, 100, 12)]


@pytest.mark.parametrize(
    ("units", "kind", "is_vector_compiler", "width", "transfer", "host"),
    [
        (2, "CPU", True, 16, False, False),
        (2, "CPU", True, 8, False, True),
        (2, "CPU", False, 16, False, True),
        (64, "CPU", True, 16, False, True),
        (2, "CPU", True, 16, True, True),
        (64, "GPU", False, 1, True, True),
    ],
)
def test_a_cpu_that_reads_in_place_gets_what_suits_it(
    units, kind, is_vector_compiler, width, transfer, host, cpu
):
    """And large matrices that NumPy would copy."""
    limits = replace(TWO_CORES, compute_units=units)
    how = {"is_vector_compiler": is_vector_compiler, "register_width": width, "is_amd": True}
    cpu.kind, cpu.traits = kind, Traits(limits, kind, **how)
    cpu.transfer = TransferConfig(2**30, 2) if transfer else None
    for product in FOR_CPUS:
        assert selection.host_is_faster(*product) == host
    copied, is_gpu = 4000 * 3600, kind == "GPU"
    assert selection.host_is_faster(4000, 64, 3600, 1, copied=copied) == (host and not is_gpu)
    least = selection.LEAST_BY_COPY
    assert selection.host_is_faster(4000, 64, 3600, 1, copied=least) == (host and not is_gpu)
    assert selection.host_is_faster(4000, 64, 3600, 1, copied=least - 1) == (not is_gpu)
    assert selection.host_is_faster(4000, 64, 3600, 1)
    assert selection.host_is_faster(4000, 1, 3600, 1, copied=copied)


@pytest.mark.parametrize(
    ("sizes", "cpu_is_faster", "gpu_is_faster"),
    [
        ((324, 197, 10, 200), True, True),
        ((324, 197, 10, 20), False, False),  # NumPy has memory for as much
        ((5000, 3000, 4, 1), True, False),
        ((6000, 6000, 4, 1), True, True),
        ((4, 10**7, 4, 1), None, False),  # few rows
        ((8, 2 * 10**6, 24, 1), None, False),  # more operands than results
    ],
)
def test_memory_for_large_new_results_is_kept(sizes, cpu_is_faster, gpu_is_faster, cpu):
    """NumPy gets it from the system each time. With `out` it need not, and few cores share it."""
    for kind, faster in (("CPU", cpu_is_faster), ("GPU", gpu_is_faster)):
        if faster is None:
            continue
        cpu.kind, cpu.transfer = kind, TransferConfig(2**34, 2) if kind == "GPU" else None
        assert selection.host_is_faster(*sizes, is_kept=True) != faster
    cpu.kind, cpu.traits = "CPU", replace(cpu.traits, limits=replace(TWO_CORES, compute_units=64))
    assert selection.host_is_faster(5000, 3000, 4, 1, is_kept=True)


@pytest.mark.parametrize("change", [{"usable_processors": 33}, {"has_avx512": False}])
def test_no_device_is_opened_on_a_processor_that_does_not_suit(change, cpu, monkeypatch):
    """More cores wait longer than is known, and without AVX-512 the host's BLAS is as fast."""
    monkeypatch.setattr(selection, "get_device", None)
    for name, value in change.items():
        monkeypatch.setattr(cpu_choice, name, lambda value=value: value)
    assert all(selection.host_is_faster(*product) for product in FOR_CPUS)


@pytest.mark.parametrize(("is_amd", "units"), [(False, 16), (True, 16), (False, 64)])
def test_many_cores_get_what_suits_them(is_amd, units, cpu, monkeypatch):
    """Of Intel's processors, up to a number of cores; others from a size on."""
    limits = replace(TWO_CORES, compute_units=units, cpu_costs=POCL_MANY_CORES)
    cpu.traits = replace(cpu.traits, limits=limits, is_amd=is_amd)
    monkeypatch.setattr(cpu_choice, "usable_processors", lambda: units)
    is_known = not is_amd and units == 16
    batch, copied = (92, 257, 97, 198), 4000 * 3600
    assert selection.host_is_faster(*batch) != is_known
    assert selection.host_is_faster(2000, 2000, 2000, 1) != is_known
    assert selection.host_is_faster(4000, 64, 3600, 1, copied=copied) != is_known
    assert selection.host_is_faster(5000, 4096, 4096, 1) == is_amd
    assert all(selection.host_is_faster(*product) for product in FOR_CPUS[:2])
    assert selection.host_is_faster(5000, 3000, 4, 1, is_kept=True) != is_known


def test_what_was_measured_decides(cpu, monkeypatch):
    """For the kinds of products that were measured on this machine."""
    found = SimpleNamespace(least={"stack-128": None})
    monkeypatch.setattr(selection, "measured", lambda _: found)
    assert not selection.host_is_faster(*FOR_CPUS[2])
    assert selection.host_is_faster(128, 128, 128, 100)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    assert not selection.host_is_faster(128, 128, 128, 100)


def test_a_runtime_of_slow_launches_needs_more_work(cpu, monkeypatch):
    """A product that suits Intel's runtime may be too small for PoCL."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: True)
    for costs, host in ((INTEL, False), (POCL, True)):
        cpu.traits = replace(cpu.traits, limits=replace(TWO_CORES, cpu_costs=costs))
        assert selection.host_is_faster(180, 200, 200, 1) == host


@pytest.mark.parametrize(
    ("m", "n", "k", "small"),
    [
        *((110, 110, 110, True), (2, 50, 600, True), (1, 4000, 500, True), (7, 20, 900, True)),
        *((2, 600, 300, False), (1300, 2, 300, False), (1000, 1000, 1000, False)),
    ],
)
def test_small_products_are_known_by_their_sizes(m, n, k, small, monkeypatch):
    """All but those of few rows or columns with a large matrix."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    assert selection.is_small(m * k, k * n, k) == small
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(m * n * k + 1))
    assert selection.is_small(m * k, k * n, k)
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(m * n * k))
    assert not selection.is_small(m * k, k * n, k)


@pytest.mark.parametrize(
    ("sizes", "kind", "unified", "clear"),
    [
        ((8192, 8192, 8192), "GPU", False, True),
        ((12000, 2144, 8192), "GPU", False, True),
        ((2048, 2048, 2048), "GPU", False, True),
        ((1500, 1500, 1500), "GPU", False, False),
        ((30000, 30000, 300), "GPU", False, False),
        ((128, 128, 128, 10**6), "GPU", False, False),
        ((512, 512, 512, 100), "GPU", False, True),
        ((8192, 8192, 8192), "GPU", True, False),
        ((8192, 8192, 8192), "accelerator", False, False),
        ((8192, 8192, 8192), "CPU", True, False),
    ],
)
def test_what_is_clearly_faster(sizes, kind, unified, clear):
    """Only a GPU with memory of its own is, for products four times above the rules' bounds."""
    cl_device = SimpleNamespace(global_mem_size=2**34, host_unified_memory=unified)
    stand = SimpleNamespace(kind=kind, shares_host_memory=False, transfer=None, cl_device=cl_device)
    assert selection.is_clearly_faster(stand, Work(*sizes)) == clear
    assert clear <= selection.is_clearly_faster(stand, Work(*sizes), 0.5)


@pytest.mark.parametrize(("processors", "threads"), [(None, 1), (1, 1), (2, 2), (16, 10), (64, 10)])
def test_few_threads_copy_to_a_device(processors, threads, monkeypatch):
    """One for each processor, and 10 at most. Transfers take half of the memory at most."""
    monkeypatch.setattr(selection.os, "cpu_count", lambda: processors)
    cl_device = SimpleNamespace(global_mem_size=2**34)
    stand = SimpleNamespace(shares_host_memory=False, transfer=None, cl_device=cl_device)
    selection._default_config.cache_clear()
    found = selection.transfer_config(stand)
    selection._default_config.cache_clear()
    assert (found.threads, found.memory_bytes) == (threads, 2**33)
