"""Tests of transfer settings as text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clgemm.bench.transfer_settings import GROUPS, changed, forced, parsed
from clgemm.core.locking import Locking
from clgemm.core.transfer import TransferConfig

CONFIG = TransferConfig(memory_bytes=2**30, threads=2)


def test_settings_are_parsed_and_applied():
    """Numbers with units, shares, words and truth; the pool holds twice a call's chunks."""
    text = "chunk_bytes=512KiB, chunks=48,locking.loads=0.25,locking.in_thread=yes,prefault=touch"
    config = changed(CONFIG, parsed(text))
    expected = replace(
        CONFIG,
        chunk_bytes=2**19,
        chunks=48,
        pool_chunks=96,
        prefault="touch",
        locking=Locking(loads=0.25, in_thread=True),
    )
    assert config == expected
    assert changed(CONFIG, parsed("")) == CONFIG


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiles", "'tiles' is not name=value"),
        ("locking=1", "'locking=1' is not name=value"),
        ("caller_copies=maybe", "caller_copies='maybe' is not of type bool"),
        ("locking.loads=much", "locking.loads='much' is not of type float"),
    ],
)
def test_wrong_settings_are_named(text, message):
    """The message has the setting and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parsed(text)


def test_all_settings_to_try_are_valid():
    """Those that docs/measure_transfers.py measures."""
    for alternatives in GROUPS.values():
        for text in alternatives:
            config = changed(forced(2, 2**31), parsed(text))
            assert config.pool_chunks >= 2 * config.chunks
            if "region_bytes" in text:  # a region that is refused goes through a chunk
                assert config.locking.region_bytes <= config.chunk_bytes
