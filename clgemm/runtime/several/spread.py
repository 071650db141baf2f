"""One product of host arrays, spread over several devices.

Equal GPUs work together, and the calling thread feeds all of them. Other devices have a thread
each. The threads draw tiles of C from a schedule, and each tile is an ordinary product on one
device; the calling thread waits, tells the progress, and is the one that signals interrupt.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Sequence

import numpy as np

from clgemm.core.host_blas import usable_processors
from clgemm.core.problem import Problem
from clgemm.core.shapes import shape_class
from clgemm.hardware.device import Device
from clgemm.planning.schedule import WAIT, Draw, Drawer, Schedule
from clgemm.planning.tiles import Box, Party, TileGrid, matrix_blocks, spread_grid
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.operands import ITEM_BYTES, layout_of, with_axes
from clgemm.runtime.progress import Meter, begun
from clgemm.runtime.several import standing
from clgemm.runtime.several.part import Compute, Part, Together
from clgemm.runtime.several.together import gains, made_together

__all__ = ["spread"]

POLL_SECONDS = 0.05
# A device that drew no tile counts for so many times as fast in the next product.
IDLE_GAIN = 1.5
# What a transfer is expected to reach, to size the draws of devices that need B anew for each.
LINK_BYTES_PER_SECOND = 2.5e10


class _StoppedError(Exception):
    """The calling thread wants no more of the product."""


def spread(
    problem: Problem,
    part: Part,
    devices: Sequence[Device],
    compute: Compute,
    together: Together,
) -> bool:
    """Make a product on several devices, if it is large enough to pay.

    Parameters
    ----------
    problem : Problem
        Of `part`, whose arrays do not overlap.

    Returns
    -------
    bool
        Whether it is made. If not, nothing was done.

    Raises
    ------
    Exception
        The last one's, if all devices failed. C is undefined then.
    """
    a, b, c, precision = part.a, part.b, part.c, part.precision
    if precision is None:
        return False
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    if c.shape[-1] > c.shape[-2]:  # tiles are cut along rows first: C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
    grid = spread_grid(c.shape, a.shape[-1], [_party(device) for device in devices])
    whole, fit = part._replace(a=a, b=b, c=c), standing.fit(devices)
    if grid is None or compete(devices) or not gains(whole, devices):
        return False
    if not made_together(whole, fit, together):
        kind = precision, shape_class(*problem.shape)
        _Spread(whole, fit, grid, compute, kind).run()
    return True


def _party(device: Device) -> Party:
    limits = device.limits
    in_place = transfer_config(device) is None
    return Party(limits.compute_units, in_place, device.kind == "CPU" and limits.vector_width == 1)


def compete(devices: Sequence[Device]) -> bool:
    """Tell whether devices take one another's processors: they would be slower than one of them.

    Two runtimes for the same processor do. Parts of a processor (``create_sub_devices``) do not.
    """
    units = [device.limits.compute_units for device in devices if device.kind == "CPU"]
    return len(units) > 1 and sum(units) > usable_processors()


class _Spread:
    """One product: its tiles, and a thread for each device."""

    def __init__(
        self,
        part: Part,
        devices: Sequence[Device],
        grid: TileGrid,
        compute: Compute,
        kind: tuple[str, str],
    ) -> None:
        self._part, self._devices, self._grid = part, devices, grid
        self._compute, self._kind = compute, kind
        columns = grid.bands[0][0][-1]
        setup_s = ITEM_BYTES * grid.depth * (columns.stop - columns.start) / LINK_BYTES_PER_SECOND
        self._drawers = [
            Drawer(standing.rate_of(d, kind), 0.0 if transfer_config(d) is None else setup_s)
            for d in devices
        ]
        self._schedule = Schedule(grid, self._drawers)
        self._changed = threading.Condition()  # of the schedule; only these threads take it
        self._errors: dict[int, BaseException] = {}
        self._done = [0] * len(devices)  # multiply-adds
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._caller = threading.current_thread()
        self._is_stopped = False

    def run(self) -> None:
        """Make the product; return when no thread works at it any more."""
        meter = begun(sum(map(self._grid.work, (t for band in self._grid.bands for t in band))))
        threads: list[threading.Thread] = []
        try:
            for who in range(len(self._devices)):
                name = f"clgemm-device-{who}"
                threads.append(threading.Thread(target=self._work, args=(who,), name=name))
                threads[-1].daemon = False  # no process ends under a device that uses its memory
                try:
                    threads[-1].start()
                except RuntimeError:  # no more threads: the others make its tiles
                    threads.pop()
                    self._leave(who, None)
            if not threads:
                self._drawers[0].is_out = False
                self._work(0)
            self._wait(len(threads), meter)
            for thread in threads:
                thread.join()  # each is at its end
        except BaseException:
            # Each thread ends after the tile that it is at. A second Ctrl-C leaves it to itself.
            self._is_stopped = True
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            raise
        self._settle()
        if meter is not None:
            meter.end()

    def _wait(self, count: int, meter: Meter | None) -> None:
        """Wait for so many threads, and tell the progress."""
        while count:
            with contextlib.suppress(queue.Empty):
                self._ended.get(timeout=POLL_SECONDS)
                count -= 1
            if meter is not None:
                meter.reach(sum(self._done))

    def _settle(self) -> None:
        """Raise if the product is not complete; note who failed and how fast the others were."""
        if not self._schedule.is_over:
            if self._is_over():  # the process ends, and the calling thread with it
                raise SystemExit
            assert self._errors, "tiles are left though no device has failed"
            raise list(self._errors.values())[-1]
        others = [d for who, d in enumerate(self._devices) if who not in self._errors]
        for who, device in enumerate(self._devices):
            if who in self._errors:
                standing.note_failure(device, self._errors[who], others)
                continue
            standing.note_success(device)
            drawer = self._drawers[who]
            if drawer.rate is not None:
                # Who drew nothing was too slow, or was once measured badly: it gets another try.
                again = 1.0 if drawer.draws else IDLE_GAIN
                standing.note_rate(device, self._kind, again * drawer.rate)

    def _is_over(self) -> bool:
        """Tell whether nobody waits for the product any more.

        Python ends a daemon thread once it has waited for this one.
        """
        return self._is_stopped or (self._caller.daemon and not threading.main_thread().is_alive())

    def _work(self, who: int) -> None:
        """Make tiles until there are none, on one device."""
        try:
            while (draw := self._next(who)) is not None:
                self._make(who, self._schedule.box(draw))
                with self._changed:
                    self._schedule.finished(who, time.perf_counter())
                    self._changed.notify_all()
        except _StoppedError:
            pass
        except BaseException as error:
            self._leave(who, error)
        finally:
            self._ended.put(who)

    def _leave(self, who: int, error: BaseException | None) -> None:
        """Take a device out, and let the others have its tiles."""
        with self._changed:
            if error is not None:
                self._errors[who] = error
            self._schedule.failed(who)
            self._changed.notify_all()

    def _next(self, who: int) -> Draw | None:
        """Return the next draw of a device; wait for one while another may fail."""
        with self._changed:
            while not self._is_over():
                draw = self._schedule.draw(who, time.perf_counter())
                if draw is not WAIT:
                    return draw
                self._changed.wait(POLL_SECONDS)
        raise _StoppedError

    def _make(self, who: int, box: Box) -> None:
        """Make a block of C on one device. If that fails, C is as before."""
        _, a, b, beta, c, _ = self._part
        block_a, block_b = matrix_blocks(box, layout_of(a), layout_of(b))
        part = self._part._replace(a=a[block_a], b=b[block_b], c=c[box])
        # A failed device leaves the block in part updated. Updating it again would be wrong.
        saved = part.c.copy() if beta and self._is_backed(who) else None
        before = self._done[who]

        def advance(work: int) -> None:
            if self._is_over():
                raise _StoppedError
            self._done[who] += work

        rows = self._grid.rows if self._grid.joins else 0
        try:
            self._compute(part, self._devices[who], rows, advance)
        except _StoppedError:
            raise
        except BaseException:
            self._done[who] = before
            if saved is not None:
                np.copyto(part.c, saved)
            raise

    def _is_backed(self, who: int) -> bool:
        """Tell whether another device could make what this one fails to make."""
        return any(not d.is_out for i, d in enumerate(self._drawers) if i != who)
