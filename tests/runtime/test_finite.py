"""Tests of what products tell of their results."""

from __future__ import annotations

import threading

from clgemm.runtime.finite import watch, watched


def test_only_those_who_ask_are_told():
    """The innermost of this thread, while its block lasts."""
    seen = []
    assert watch() is None
    with watched() as outer:
        assert watch() is outer
        with watched(is_wanted=False):
            assert watch() is None
        with watched() as inner:
            assert watch() is inner
            thread = threading.Thread(target=lambda: seen.append(watch()))
            thread.start()
            thread.join()
        assert watch() is outer
    assert watch() is None
    assert seen == [None]
    assert outer.elements == inner.elements == 0
