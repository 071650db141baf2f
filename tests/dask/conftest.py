"""Fixtures of the tests for Dask, which import it themselves if it is installed."""

from __future__ import annotations

import pytest

import clgemm


@pytest.fixture(autouse=True, scope="session")
def own_claims(tmp_path_factory):
    """Keep the claims of these tests' workers apart from those of tests beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("claims")))
        yield


@pytest.fixture
def undone():
    """End what a test began in this process, and check that NumPy is restored."""
    from chunked import is_original

    from clgemm.dask import workers

    yield
    workers.end("test")
    assert is_original()
    clgemm.set_device(None)
