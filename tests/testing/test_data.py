"""Tests of the families of data."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.testing import DATA, EXACT
from clgemm.testing.bounds import LEAST_PRODUCT
from clgemm.testing.data import made

RNG = np.random.default_rng(27)


@pytest.mark.parametrize("name", DATA)
def test_products_of_hostile_data_stay_in_range(name):
    """Every family of data is finite, and its products neither overflow nor lose bits below."""
    values = made(name, RNG, (3, 30, 40))
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    smallest = abs(values[values != 0]).min(initial=np.inf)
    assert float(abs(values).max()) ** 2 * 130 * 3 < np.finfo(np.float32).max
    assert float(smallest) ** 2 >= LEAST_PRODUCT * 2.0**-12
    if name in EXACT:
        assert (values == values.round()).all()
    with pytest.raises(ValueError, match="data='odd' is not one of ones, integers"):
        made("odd", RNG, (1, 1))
