"""Tests of verdicts: which configs of other devices were validated here."""

from __future__ import annotations

import logging

import pytest
from made_records import GPU

from clgemm.core import cache
from clgemm.core.cache import recall
from clgemm.planning import crossovers
from clgemm.records import lookup, verdicts


def test_broken_crossovers_and_verdicts_are_named(alone, caplog):
    """With what serves instead; what is kept next begins a new file."""
    folder = lookup.user_file(GPU).parent
    folder.mkdir(parents=True)
    (folder / "crossovers.json").write_text('{"format": 1, "measured": {')
    (folder.parent / "verdicts.json").write_text("{")
    crossovers.forget()
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert crossovers.smallest(7) == 7
        assert cache.recall("key") is None
        assert cache.recall("key") is None
    first, second = caplog.messages
    assert first.startswith(f"{folder / 'crossovers.json'} holds no valid crossovers")
    assert second.startswith(f"{folder.parent / 'verdicts.json'} is broken")
    assert cache.remember("key", 1)
    assert cache.recall("key") == 1
    crossovers.forget()


def test_an_interrupted_trial_says_nothing_about_its_choice(device, monkeypatch):
    """An interrupted validation stores no verdict, so that the next call repeats it."""
    from clgemm.hardware.identity import identify
    from clgemm.kernels import family_named

    who, choice = identify(device), family_named("direct").plainest(device.traits)
    monkeypatch.setattr(verdicts, "_key", lambda *_: "an interrupted trial")

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verdicts.validated_on(who, choice, interrupted)
    assert recall("an interrupted trial") is None
