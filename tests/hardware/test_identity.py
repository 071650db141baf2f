"""Tests of how other processes find a device again."""

from __future__ import annotations

import pytest

from clgemm.hardware.choice import devices
from clgemm.hardware.identity import find, identify, identity


def test_the_device_is_found_again():
    """find returns the device of an identity, and refuses an unknown one."""
    for device in devices():
        assert find(identity(device)) is device
    with pytest.raises(RuntimeError, match="this process has no device X of Y"):
        find(["X", "Y", "0"])


def test_a_device_is_found_again_by_its_identity(device):
    """Records and children know it by what its driver says."""
    assert identity(device)[:2] == [device.name, device.platform]
    who = identify(device)
    assert who.kind == device.kind
    assert who.runtime in device.platform
    assert str(who.architecture)
