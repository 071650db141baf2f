"""Tests of devices that are not used for a while."""

from __future__ import annotations

import time

from clgemm.accel.left_out import LeftOutDevices


def test_a_device_is_left_out_longer_each_time(device, monkeypatch):
    """Until it works again."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    devices = LeftOutDevices()
    assert not devices
    assert not devices.has(device)
    assert not devices.remove(device)
    for failures, pause in ((1, 10), (2, 20), (3, 40)):
        found = devices.add(device, "planted")
        assert (found.device, found.failures, found.error) == (device.name, failures, "planted")
        assert list(devices) == [found]
        now[0] += pause - 1
        assert devices.has(device)
        now[0] += 1
        assert not devices.has(device)
        assert devices
    assert devices.remove(device)
    assert not devices
    assert devices.add(device, "").failures == 1
