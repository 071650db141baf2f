"""The opening of the chosen device, with all that a product on it takes. It imports when called."""

from __future__ import annotations


def load() -> None:
    """Import what a product on a device takes, and start the drivers meanwhile."""
    from clgemm.hardware.runtimes import start_drivers

    start_drivers()
    import clgemm.runtime.finite
    import clgemm.transfer.call_cache
    import clgemm.transfer.multiply  # noqa: F401 - for what it imports


def open_chosen() -> None:
    """Open the chosen device.

    Raises
    ------
    RuntimeError, ValueError
        As `clgemm.hardware.choice.chosen`.
    """
    load()
    from clgemm.hardware.choice import chosen

    assert chosen()[0].queue is not None
