"""Tests of the limits of transfers."""

from __future__ import annotations

from clgemm.core.transfer_config import TransferConfig

DEFAULT = TransferConfig(memory_bytes=2**34, threads=8)


def test_two_calls_find_chunks_at_the_same_time():
    """Each holds as many as a call may in each direction; otherwise one would wait for itself."""
    assert DEFAULT.pool_chunks >= 2 * DEFAULT.chunks


def test_what_is_sent_at_once_fits_the_chunks_of_a_call():
    """Both operands are in chunks together: two of three equal arrays."""
    assert 2 / 3 * DEFAULT.at_once_bytes <= DEFAULT.chunks * DEFAULT.chunk_bytes
    assert DEFAULT.threaded_bytes < DEFAULT.at_once_bytes


def test_equal_configs_are_one():
    """Schedules and routes are looked up by them."""
    assert hash(DEFAULT) == hash(TransferConfig(memory_bytes=2**34, threads=8))
    assert TransferConfig(memory_bytes=2**34, threads=8) == DEFAULT
    assert TransferConfig(memory_bytes=2**34, threads=9) != DEFAULT
