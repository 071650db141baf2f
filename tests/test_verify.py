"""Tests of ``python -m clgemm verify``: families, the contract, the counts and the file."""

from __future__ import annotations

import json

import numpy as np
import pytest

import clgemm
from clgemm import verify
from clgemm.__main__ import main
from clgemm.core.problem import Shape
from clgemm.hardware.device import identify
from clgemm.kernels import family_named
from clgemm.planning import planner
from clgemm.planning.planner import families
from clgemm.records.tuned import kernels_hash
from clgemm.records.verified import all_verified, file_name, read
from clgemm.runtime.workspace import Workspace
from clgemm.verify import MOST_MESSAGES, Tally, operands_for


def test_products_are_counted_by_family_precision_and_part():
    """All of them are products of the tally; the largest error is in units of the bound."""
    tally = Tally()
    for worst in (0.2, 0.12345, 0.1):
        tally.add(tally.of_family("tiled", "strict"), "here", 10, worst, "")
    tally.add(tally.of_family("tiled", "fast"), "here", 10, 0.9, "")
    tally.add(tally.of_part("threads"), "there", 5, 0.3, "")
    assert tally.of_family("tiled", "strict").as_dict() == {
        "products": 3, "elements": 30, "failures": 0, "worst": 0.2
    }  # fmt: skip
    assert (tally.products, tally.failures) == (5, 0)


def test_a_failure_is_counted_and_its_error_is_not():
    """The error of a wrong product is no error of right ones; its message says where."""
    tally = Tally()
    count = tally.of_part("threads")
    for _ in range(MOST_MESSAGES + 5):
        tally.add(count, "there", 5, 99.0, "wrong")
    assert count.worst == 0
    assert tally.failures == tally.products == MOST_MESSAGES + 5
    assert tally.messages == ["there: wrong"] * MOST_MESSAGES


def test_an_error_that_is_no_number_is_null_in_json():
    """JSON has no infinity."""
    tally = Tally()
    tally.add(tally.of_part("threads"), "there", 5, float("inf"), "")
    assert json.loads(json.dumps(tally.of_part("threads").as_dict()))["worst"] is None


def test_operands_of_verification_are_those_of_the_seed():
    """The same seed gives the same operands, so that a failure can be repeated."""
    direct = next(x for x in planner.FAMILIES if x.name == "direct")
    (shape, *_) = direct.edge_shapes(direct.config(1, 1, 2, 4, False))
    one, other = (
        operands_for(np.random.default_rng(3), direct, shape, "strict", 2) for _ in range(2)
    )
    np.testing.assert_array_equal(one.a.base, other.a.base)
    assert one.c.view.strides == other.c.view.strides


SEED = 27


def never():
    """There is no time."""
    return False


@pytest.fixture
def one_choice(monkeypatch):
    """Only the first config of each family: each is compiled."""
    choices = verify.choices_of
    monkeypatch.setattr(verify, "choices_of", lambda *which: choices(*which)[:1])


def test_a_family_is_verified_by_products_of_its_own(device, one_choice):
    """Each config makes products that keep the bound, and is named in the record."""
    tally, rng = Tally(), np.random.default_rng(SEED)
    verify.verify_family(device, family_named("direct"), tally, rng, never)
    (count,) = tally.families["direct"].values()
    assert count.products == verify.LEAST_PRODUCTS
    assert count.elements > 0
    assert tally.failures == 0, tally.messages
    assert tally.configs["direct"][0]["family"] == "direct"


def test_every_config_makes_products_whatever_the_time(device, monkeypatch):
    """In both modes of a family that has two; too large products are left out."""
    direct = family_named("direct")
    configs = [direct.plainest(device.traits), *direct.defaults(Shape(9, 9, 9), device.traits)]
    monkeypatch.setattr(verify, "choices_of", lambda *_: configs)
    monkeypatch.setattr(verify, "modes_of", lambda _: ("strict", "float32"))
    tally, rng = Tally(), np.random.default_rng(SEED)
    verify.verify_family(device, direct, tally, rng, never)
    assert len(tally.configs["direct"]) == 2
    counts = tally.families["direct"]
    assert {mode: count.products for mode, count in counts.items()} == {"strict": 4, "float32": 4}
    monkeypatch.setattr(verify, "MOST_WORK", 0)
    verify.verify_family(device, direct, tally, rng, never)
    assert counts["strict"].products == 4


def test_a_family_goes_on_while_there_is_time(device, one_choice):
    """It begins anew with other operands when every case is done."""
    tally, rng, left = Tally(), np.random.default_rng(SEED), iter([True] * 9)
    direct = family_named("direct")
    verify.verify_family(device, direct, tally, rng, lambda: next(left, False))
    assert tally.of_family("direct", "strict").products > 5
    assert tally.failures == 0, tally.messages


@pytest.mark.parametrize(
    ("fault", "said"),
    [("scale", "elements are wrong"), ("guard", "memory around C was written"), ("error", "boom")],
)
def test_a_wrong_product_of_a_family_is_counted_and_named(
    fault, said, device, one_choice, monkeypatch
):
    """A forgotten scale, a write beyond C and an error each are failures."""
    run = Workspace.run

    def wrong(self, plan, device, matrices, alpha, beta):
        if fault == "error":
            raise RuntimeError("boom")
        run(self, plan, device, matrices, alpha + 1, beta)

    real = verify.on_device

    def placed(device, operand):
        view, base = real(device, operand)
        if fault == "guard":
            base[...] = 3.0
        return view, base

    if fault == "guard":
        monkeypatch.setattr(verify, "on_device", placed)
    else:
        monkeypatch.setattr(Workspace, "run", wrong)
    tally, rng = Tally(), np.random.default_rng(SEED)
    left = iter([True] * 5)
    verify.verify_family(device, family_named("direct"), tally, rng, lambda: next(left, False))
    assert tally.failures > 0
    assert said in "".join(tally.messages)
    assert "direct DirectConfig(" in tally.messages[0]


def test_every_family_of_a_device_has_configs_and_edge_shapes(device):
    """Nothing that a product may use is left out of verification."""
    for family in families(device):
        assert verify.choices_of(device, family)
        assert {mode for _, _, mode in verify.cases_of(device, family)} == set(
            verify.modes_of(family)
        )


def test_every_part_of_the_contract_holds_on_the_device(device):
    """Layouts, storage, batches, device arrays, threads, repeatability and little memory."""
    tally = Tally()
    verify.verify_contract(device, tally, np.random.default_rng(SEED), never)
    assert set(tally.contract) == set(verify.PARTS)
    assert all(count.products == 3 for count in tally.contract.values())
    assert tally.failures == 0, tally.messages


def test_a_wrong_function_is_found_by_every_part(device, monkeypatch):
    """An sgemm whose results are a little too large fails wherever results are not all zero."""
    real_sgemm, real_matmul, real_gemm = verify.sgemm, verify.matmul, verify.gemm

    def wrong(result):
        result[...] = result * np.float32(1.001) + np.float32(1)
        return result

    def wrong_gemm(*arguments, **keywords):
        result = real_gemm(*arguments, **keywords)
        result[...] = result == 0
        return result

    monkeypatch.setattr(verify, "sgemm", lambda *x, **y: wrong(real_sgemm(*x, **y)))
    monkeypatch.setattr(verify, "gemm", wrong_gemm)
    monkeypatch.setattr(
        *(verify, "matmul"),
        lambda a, b: wrong(real_matmul(a, b)) if a.dtype == "f4" else -real_matmul(a, b),
    )
    tally, left = Tally(), iter([True] * 24)
    rng = np.random.default_rng(SEED)
    verify.verify_contract(device, tally, rng, lambda: next(left, False))
    assert all(count.failures for count in tally.contract.values()), tally.contract


@pytest.fixture
def small(monkeypatch):
    """A verification of a second: what the command does with a tally."""

    def verified(device, seconds, seed):
        tally = Tally()
        tally.add(tally.of_family("direct", "strict"), "direct", 6, 0.25, "")
        tally.configs["direct"] = []
        tally.add(tally.of_part("threads"), "threads", 6, 0.5, "wrong" if seed == 13 else "")
        return tally

    monkeypatch.setattr(verify, "verify", verified)


def test_the_command_writes_a_file_that_info_reads(device, small, tmp_path, monkeypatch, capsys):
    """The file names device, kernels, counts, date and seed, and info says what is verified."""
    assert main(["verify", "--minutes", "0.1", "--seed", "7", "--folder", str(tmp_path)]) == 0
    who = identify(device)
    file = tmp_path / file_name(who)
    assert str(file) in capsys.readouterr().out
    whole = json.loads(file.read_text(encoding="utf-8"))
    assert (whole["seed"], whole["clgemm"]) == (7, clgemm.__version__)
    assert whole["contract"]["threads"]["worst"] == 0.5
    (record,) = read(file.read_text(encoding="utf-8"))
    assert (record.device, record.kernels) == (who, kernels_hash("direct"))
    monkeypatch.setattr(clgemm.info, "all_verified", lambda: all_verified(tmp_path))
    shown = clgemm.show_config("dicts")["Verification"]
    assert shown["direct"].startswith("verified on this device, ")
    others = {family.name for family in families(device)} - {"direct"}
    assert {shown[name] for name in others} == {"not verified"}
    assert "python -m clgemm verify" in shown["what helps"]


def test_a_failure_is_the_exit_code(device, small, tmp_path, capsys):
    """With a wrong product the command returns 1, and its file does not count as verified."""
    assert main(["verify", "--seed", "13", "--folder", str(tmp_path)]) == 1
    assert "threads: wrong" in capsys.readouterr().err


def test_what_cannot_be_done_is_one_line(device, small, tmp_path, monkeypatch, capsys):
    """A device of another name gives 2, a folder that cannot be written 1, Ctrl-C 130."""
    assert main(["verify", "--device", "nothing at all"]) == 2
    assert "names no OpenCL device" in capsys.readouterr().err
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["verify", "--folder", str(tmp_path / "file")]) == 1
    assert "was not written" in capsys.readouterr().err

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify", interrupted)
    assert main(["verify", "--folder", str(tmp_path / "none")]) == 130
    assert not (tmp_path / "none").exists()


def test_the_file_goes_to_the_cache_folder_by_default(device, small, tmp_path, monkeypatch, capsys):
    """The working directory stays as it is, and info knows what this user has verified."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    arguments = ["verify", "--device", str(clgemm.devices().index(device)), "--minutes", "0.05"]
    assert main(arguments) == 0
    file = tmp_path / "cache" / "verified" / file_name(identify(device))
    assert str(file) in capsys.readouterr().out
    assert sorted(x.name for x in tmp_path.iterdir()) == ["cache"]
    assert any(record.device == identify(device) for record in all_verified())
    all_verified.cache_clear()
