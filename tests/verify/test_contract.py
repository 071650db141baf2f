"""Tests of the verification of sgemm's contract."""

from __future__ import annotations

import numpy as np

from clgemm.verify import contract
from clgemm.verify.tally import Tally

SEED = 27


def never():
    """There is no time."""
    return False


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
