"""Tests of transfer settings as text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clgemm.bench.transfer_settings import changed, parsed
from clgemm.core.transfer_config import TransferConfig

CONFIG = TransferConfig(memory_bytes=2**30, threads=2)


def test_settings_are_parsed_and_applied():
    """Numbers, with units or without; the pool holds twice a call's chunks."""
    config = changed(CONFIG, parsed("chunk_bytes=512KiB, chunks=48,tiles=3"))
    assert config == replace(CONFIG, chunk_bytes=2**19, chunks=48, pool_chunks=96, tiles=3)
    assert changed(CONFIG, parsed("")) == CONFIG


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiles", "'tiles' is not name=value"),
        ("locking=1", "'locking=1' is not name=value"),
        ("tiles=many", "tiles='many' is not a whole number"),
    ],
)
def test_wrong_settings_are_named(text, message):
    """The message has the setting and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parsed(text)
