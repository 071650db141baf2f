"""``python -m clgemm verify``: it finds planted faults, and writes what it verified."""

from __future__ import annotations

import json

import numpy as np
import pytest

import clgemm
from clgemm.__main__ import main
from clgemm.hardware.identity import identify
from clgemm.kernels import family_named
from clgemm.planning.planner import families
from clgemm.records.verified import all_verified, file_name, read, verified_hash
from clgemm.runtime.workspace import Workspace
from clgemm.verify import command, contract
from clgemm.verify import families as each_family
from clgemm.verify.tally import Tally

SEED = 27


def never():
    """There is no time."""
    return False


@pytest.fixture
def one_choice(monkeypatch):
    """Only the first config of each family: each is compiled."""
    choices = each_family.choices_of
    monkeypatch.setattr(each_family, "choices_of", lambda *which: choices(*which)[:1])


def test_a_family_is_verified_by_products_of_its_own(device, one_choice):
    """Each config makes products that keep the bound, and is named in the record."""
    tally, rng = Tally(), np.random.default_rng(SEED)
    each_family.verify_family(device, family_named("direct"), tally, rng, never)
    (count,) = tally.families["direct"].values()
    assert count.products == 1
    assert count.elements > 0
    assert tally.failures == 0, tally.messages
    assert tally.configs["direct"][0]["family"] == "direct"


def test_a_family_goes_on_while_there_is_time(device, one_choice):
    """It begins anew with other operands when every case is done."""
    tally, rng, left = Tally(), np.random.default_rng(SEED), iter([True] * 9)
    direct = family_named("direct")
    each_family.verify_family(device, direct, tally, rng, lambda: next(left, False))
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

    real = each_family.on_device

    def placed(device, operand):
        view, base = real(device, operand)
        if fault == "guard":
            base[...] = 3.0
        return view, base

    if fault == "guard":
        monkeypatch.setattr(each_family, "on_device", placed)
    else:
        monkeypatch.setattr(Workspace, "run", wrong)
    tally, rng = Tally(), np.random.default_rng(SEED)
    left = iter([True] * 5)
    each_family.verify_family(device, family_named("direct"), tally, rng, lambda: next(left, False))
    assert tally.failures > 0
    assert said in "".join(tally.messages)
    assert "direct DirectConfig(" in tally.messages[0]


def test_every_part_of_the_contract_holds_on_the_device(device):
    """Layouts, storage, batches, device arrays, threads, repeatability and little memory."""
    tally = Tally()
    contract.verify_contract(device, tally, np.random.default_rng(SEED), never)
    assert set(tally.contract) == set(contract.PARTS)
    assert all(count.products == 3 for count in tally.contract.values())
    assert tally.failures == 0, tally.messages


def test_a_wrong_function_is_found_by_every_part(device, monkeypatch):
    """An sgemm whose results are a little too large fails wherever results are not all zero."""
    real_sgemm, real_matmul = contract.sgemm, contract.matmul

    def wrong(result):
        result[...] = result * np.float32(1.001) + np.float32(1)
        return result

    monkeypatch.setattr(contract, "sgemm", lambda *x, **y: wrong(real_sgemm(*x, **y)))
    monkeypatch.setattr(contract, "matmul", lambda *x, **y: wrong(real_matmul(*x, **y)))
    tally, left = Tally(), iter([True] * 21)
    rng = np.random.default_rng(SEED)
    contract.verify_contract(device, tally, rng, lambda: next(left, False))
    assert all(count.failures for count in tally.contract.values()), tally.contract


def test_every_family_of_a_device_has_configs_and_edge_shapes(device):
    """Nothing that a product may use is left out of verification."""
    for family in families(device):
        assert each_family.choices_of(device, family)
        assert {mode for _, _, mode in each_family.cases_of(device, family)} == set(
            each_family.modes_of(family)
        )


@pytest.fixture
def small(monkeypatch):
    """A verification of a second: what the command does with a tally."""

    def verified(device, seconds, seed):
        tally = Tally()
        tally.add(tally.of_family("direct", "strict"), "direct", 6, 0.25, "")
        tally.configs["direct"] = []
        tally.add(tally.of_part("threads"), "threads", 6, 0.5, "wrong" if seed == 13 else "")
        return tally

    monkeypatch.setattr(command, "verify", verified)


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
    assert (record.device, record.kernels) == (who, verified_hash("direct"))
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

    monkeypatch.setattr(command, "verify", interrupted)
    assert main(["verify", "--folder", str(tmp_path / "none")]) == 130
    assert not (tmp_path / "none").exists()
