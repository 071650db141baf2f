"""One product from checked operands: plan it, bind the plan, execute it.

The operands reach the device in one of three ways: device arrays as they are, host memory in place,
host memory through transfers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array

from clgemm.core.problem import Problem, Triangles
from clgemm.core.settings import chosen_precision
from clgemm.core.threads import RejectedError, is_within
from clgemm.hardware.choice import BrokenDeviceError, chosen, takes_addresses
from clgemm.hardware.device import Device, of_queue, transfer_config
from clgemm.kernels.exact.types import Types
from clgemm.kernels.pack.plan import copy_plan
from clgemm.planning.cut import is_cut, parts, takes_seconds
from clgemm.planning.planner import triangle_rows
from clgemm.runtime import exact
from clgemm.runtime.execute import BoundCall, bind, bind_in_place, execute, is_long
from clgemm.runtime.finite import watched
from clgemm.runtime.host_pages import NotInPlaceError
from clgemm.runtime.operands import (
    AnyArray,
    HostArray,
    allocated,
    duplicate_memory,
    indexable,
    layouts_of,
    overlap,
    own_transpose,
    place,
    problem_of,
    with_axes,
    zeros,
)
from clgemm.runtime.progress import SILENT, Meter, begun
from clgemm.runtime.workspace import Workspace, workspace
from clgemm.transfer.copy_threads import copy_triangle, mirror
from clgemm.transfer.resident import NO_COPIES, OperandCopies, StaleError, operand_copies
from clgemm.transfer.several import multiply_together, sharers
from clgemm.transfer.single_transfer import SingleTransfer, plan_single_transfer
from clgemm.transfer.staging import Staging, any_staging, staging
from clgemm.transfer.tiles import Call, TiledProduct, multiply_tiles, run_product, share_of

UPDATED_ROWS = 64  # of C at a time, on the host

log = logging.getLogger(__name__)

Events = Sequence[cl.Event]
T = TypeVar("T")


def multiply(
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
    *,
    queue: cl.CommandQueue | None = None,
    wait_for: Events = (),
    precision: str | None = None,
    triangles: Triangles = "",
) -> BoundCall | SingleTransfer | None:
    """Update a batch of matrices on the device: C = alpha A B + beta C.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Batches broadcast to that of `c`. They may overlap `c`, which is written last.
    c : float32 array, shape (..., m, n)
        Updated in place: complete on return on the host, enqueued on the device. Not read when
        `beta` is 0. No two of its elements share memory.
    wait_for : sequence of pyopencl.Event
        What a product of device arrays waits for.
    queue : pyopencl.CommandQueue, optional
        Needed for device operands. If left out, host operands go to the chosen device, or to
        several.
    precision : {"strict", "float32", "fast"}, optional
        As resolved by `chosen_precision`; if left out, it is resolved here.
    triangles : {"", "upper", "lower"}, optional
        The triangle of the matrix C that alone is updated, where B is A's transpose.

    Returns
    -------
    BoundCall, SingleTransfer or None
        What repeats the product, if one bound plan was all that it took.
    """
    if precision is None:
        precision = chosen_precision()
    if 0 in c.shape:
        return None
    if alpha == 0 or a.shape[-1] == 0:
        if beta == 1:
            return None
        alpha = 0.0  # and so A and B are not read
    while True:
        devices = chosen() if queue is None else (of_queue(queue),)
        by = devices[0].queue if queue is None else queue
        try:
            return _multiply_on(devices, by, alpha, a, b, beta, c, wait_for, precision, triangles)
        except BrokenDeviceError:  # nothing was enqueued
            if queue is not None or chosen() == devices:  # the user has named it
                raise


def multiply_exactly(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray,
    device: Device | None = None,
    *,
    is_optional: bool = True,
) -> BoundCall | None:
    """Write A B to C in the dtype of C: any that devices compute, other than float32.

    Parameters
    ----------
    a, b : array, shapes (..., m, k) and (..., k, n)
        Batches broadcast to that of `c`. All three are on the same side.
    c : array, shape (..., m, n)
        Complete on return on the host, where it overlaps neither; enqueued on the device. No two of
        its elements share memory.
    device : Device, optional
        The chosen one if left out, or that of device arrays.
    is_optional : bool, optional
        Whether NumPy computes the product if that is as fast.

    Returns
    -------
    BoundCall or None
        What repeats the product of device arrays, if one bound plan was all that it took.

    Raises
    ------
    NotReadyError
        If kernels are missing, and the product is optional.
    RejectedError
        If the device does not compute such products, or its kernels do not work.
    """
    if 0 in c.shape:
        return None
    is_empty = not a.shape[-1]
    if is_empty:  # an empty sum is 0, as that of a zero by a zero is
        queue = None if isinstance(c, np.ndarray) else c.queue
        a, b = (
            zeros(c, shape, "C", queue, c.dtype) for shape in ((c.shape[-2], 1), (1, c.shape[-1]))
        )
    is_symmetric = a.dtype == b.dtype and own_transpose(a, b)
    if not isinstance(c, np.ndarray):
        x, y = (duplicate_memory(x, c.queue) if overlap(x, c) else x for x in (a, b))
        bound = exact.bind_arrays(x, y, c, is_symmetric)
        execute(bound, 1.0, x, y, 0.0, c)
        return None if is_empty or x is not a or y is not b else bound
    types = exact.types_of(a, b, c)
    devices = chosen() if device is None else (device,)
    device = devices[0]
    if is_optional and c.dtype.char in "dFD" and device.limits.has_vectors:
        raise RejectedError(f"NumPy's BLAS computes {c.dtype} as fast as {device.label}")
    a, b = (x if indexable(x) else x.copy() for x in (a, b))
    meter = begun(math.prod(c.shape) * a.shape[-1])
    if not _multiplied_exactly_in_place(a, b, c, types, device, is_symmetric):
        pool = any_staging(device)

        def make(device: Device, space: Workspace) -> TiledProduct:
            made = TiledProduct(1.0, 0.0, "strict", device, space, types=types)
            return made._replace(is_symmetric=is_symmetric, advance=meter.advance)

        with watched(is_wanted=False):
            # "float32": as fast as tensor cores, so that no more devices share than gain by it.
            is_shared = _shared(
                *(make, devices, (a, b, c), "float32", meter),
                is_updated=False,
                is_symmetric=is_symmetric,
            )
            if not is_shared:
                is_nested = is_within(run_product)
                copies = operand_copies(device, a, b, is_nested)
                product = make(device, pool.space)

                def compute(copies: OperandCopies) -> bool:
                    return multiply_tiles(pool, product, (a, b, c), copies, is_nested)

                if not _computed(compute, copies) and is_symmetric:
                    mirror(c, pool)
    meter.end()
    return None


def _multiplied_exactly_in_place(
    a: HostArray, b: HostArray, c: HostArray, types: Types, device: Device, is_symmetric: bool
) -> bool:
    """Write A B to C if a device uses them where they lie; of A A', compute one triangle."""
    if transfer_config(device) is not None:
        return False
    rows = 0
    if is_symmetric and types.a != "b1":  # of booleans it takes no less time
        if abs(c.strides[-2]) < abs(c.strides[-1]):
            c = c.swapaxes(-1, -2)
        problem, _ = problem_of(a, b, c, "strict", 0.0)
        rows = triangle_rows(problem.broadcast(), device.traits)
    space = workspace(device.queue)
    bound = exact.bind(layouts_of(a, b, c), types, device, space, rows, is_symmetric)
    try:
        execute(bound, 1.0, a, b, 0.0, c)
    except NotInPlaceError:
        return False
    if rows or (is_symmetric and types.c[0] == "c"):  # whose sums are not in one order
        mirror(c, None)
    return True


def _multiply_on(
    devices: Sequence[Device],
    queue: cl.CommandQueue,
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
    wait_for: Events,
    precision: str,
    triangles: Triangles,
) -> BoundCall | SingleTransfer | None:
    """Update C on the first device, by its queue; host arrays perhaps on all of them."""
    device, on_host = devices[0], isinstance(c, np.ndarray)
    reads = precision if alpha else None
    problem, overlaps = problem_of(a, b, c, reads, beta, triangles)
    if any(overlaps):  # an operand that the result would overwrite is read from a copy
        order: Literal["C", "K"] = "K" if on_host else "C"
        a, b = (
            duplicate(x, order, queue) if copied else x
            for x, copied in zip((a, b), overlaps, strict=True)
        )
        copied, _ = problem_of(a, b, c, reads)
        problem = problem._replace(a=copied.a, b=copied.b)
    if not on_host:
        bound = bind(problem, device, workspace(queue))
        execute(bound, alpha, a, b, beta, c, wait_for)
        return bound if alpha and not any(overlaps) else None
    in_parts = transfer_config(device) is not None or is_cut(device, problem)
    in_parts |= device.is_integrated  # which may not use the operands in place
    if triangles and (in_parts or len(devices) > 1):
        is_done = False
        if alpha and not beta:
            try:
                is_done = _sent_triangle(device, alpha, (a, b, c), precision, triangles)
            except cl.Error as error:
                if len(devices) == 1:
                    raise
                _warn_of(device, error, "the product is made in another way")
        if not is_done:
            whole = allocated(c, c.shape, "C", None)
            _multiply_on(devices, queue, alpha, a, b, 0.0, whole, (), precision, "")
            if beta:
                _add_scaled(whole, beta, c)
            copy_triangle(c, whole, triangles == "lower", staging(device))
        return None
    meter = begun(problem.shape.work) if alpha else SILENT
    product = _Product(problem, alpha, a, b, beta, c, meter)
    found = None
    is_shared = bool(alpha) and _shared(
        *(product.tiled, devices, (a, b, c), precision, meter),
        is_updated=bool(beta),
        is_symmetric=problem.is_symmetric,
    )
    if not is_shared:
        found = _on_first_that_works(product, devices, queue)
    meter.end()
    return found if alpha and not any(overlaps) else None


def _sent_triangle(
    device: Device,
    alpha: float,
    arrays: tuple[HostArray, HostArray, HostArray],
    precision: str,
    triangles: Triangles,
) -> bool:
    """Write one triangle of alpha A A', tile by tile. Return whether A was sent once for that."""
    if (pool := staging(device)) is None:
        return False
    scalars = alpha, 0.0, precision
    product = TiledProduct(*scalars, device, pool.space, is_symmetric=True, triangles=triangles)
    share = share_of(pool, product, arrays)
    if not share.is_sent_once:
        return False
    a, _, c = arrays
    meter = begun(c.size * a.shape[-1])
    share.product = product._replace(advance=meter.advance)
    run_product(Call([share], NO_COPIES, is_within(run_product)).run)
    meter.end()
    return True


def _add_scaled(x: HostArray, beta: float, c: HostArray) -> None:
    """Add beta C to a matrix, a few rows at a time: they take little memory."""
    with np.errstate(all="ignore"):
        for start in range(0, len(c), UPDATED_ROWS):
            rows = slice(start, start + UPDATED_ROWS)
            x[rows] += np.float32(beta) * c[rows]


class _Product(NamedTuple):
    """C = alpha A B + beta C of host arrays that do not overlap, and its progress."""

    problem: Problem
    alpha: float
    a: HostArray
    b: HostArray
    beta: float
    c: HostArray
    meter: Meter  # it may raise an exception to end the call

    def tiled(self, device: Device, space: Workspace, is_slow: bool = False) -> TiledProduct:
        """Return what a device computes with each tile."""
        precision, is_symmetric = self.problem.precision, self.problem.is_symmetric
        made = self.alpha, self.beta, precision, device, space, is_slow, is_symmetric
        return TiledProduct(*made, advance=self.meter.advance)


def _shared(
    make: Callable[[Device, Workspace], TiledProduct],
    devices: Sequence[Device],
    arrays: tuple[AnyArray, AnyArray, AnyArray],
    precision: str,
    meter: Meter,
    *,
    is_updated: bool,
    is_symmetric: bool,
) -> bool:
    """Compute a product on several equal devices. Return whether they have.

    If one fails, the product can be computed anew, unless C was updated: then this raises.
    """
    equal = sharers(devices, *arrays, precision) if len(devices) > 1 else []
    if len(equal) < 2:
        return False
    stagings, products = [], []
    for device in equal:
        pool = staging(device)
        assert pool is not None
        stagings.append(pool)
        products.append(make(device, pool.space)._replace(is_symmetric=False))
    try:
        is_computed = multiply_together(stagings, products, *arrays)
    except cl.Error as error:
        if is_updated:
            raise
        log.warning("clgemm: one of several GPUs failed, one computes the product: %s", error)
        meter.reach(0)
        return False
    if is_computed and is_symmetric:
        mirror(arrays[2], stagings[0])
    return is_computed


def _on_first_that_works(
    product: _Product, devices: Sequence[Device], queue: cl.CommandQueue
) -> BoundCall | SingleTransfer | None:
    """Compute a product on one device; if it fails, and C was not updated, on the next one."""
    device, *others = devices
    try:
        return _multiply_on_host(product, device, queue)
    except cl.Error as error:
        if product.beta or not others:
            raise
        _warn_of(device, error, f"{others[0].label} goes on")
    return _on_first_that_works(product, others, others[0].queue)


def _warn_of(device: Device, error: cl.Error, what_follows: str) -> None:
    log.warning("clgemm: %s failed, %s: %s", device.label, what_follows, error)


def _multiply_on_host(
    product: _Product, device: Device, queue: cl.CommandQueue
) -> BoundCall | SingleTransfer | None:
    problem, _, a, b, beta, c, _ = product
    if transfer_config(device) is not None:
        return _compute_by_staging(product, device)
    space = workspace(queue)
    if not is_cut(device, problem):
        bound = _compute(product, device, space)
        # What is repeated by the call cache tells no progress.
        return None if takes_seconds(device, problem) else bound
    x, y = (with_axes(each, c.ndim) for each in (a, b))
    for part in parts(device, problem):
        own = x[part.a], y[part.b], c[part.c]
        piece, _ = problem_of(*own, problem.precision)
        scale = beta if part.is_first else 1.0
        _compute(
            product._replace(problem=piece, a=own[0], b=own[1], beta=scale, c=own[2]), device, space
        )
    if problem.is_symmetric:  # parts below the diagonal were left out
        mirror(c, None)
    return None


def multiply_through(
    staging: Staging,
    product: TiledProduct,
    a: HostArray,
    b: HostArray,
    c: HostArray,
) -> SingleTransfer | None:
    """Multiply host arrays, mostly tile by tile; the result is in `c` on return.

    Nothing is written to `c` before all that its tiles take has been built and allocated. If a
    command fails on the device after that, `c` may hold a part of the result.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Of any strides; batches broadcast to that of `c`.
    c : float32 array, shape (..., m, n)
        Of any strides; it overlaps neither `a` nor `b`.

    Returns
    -------
    SingleTransfer or None
        What repeats the product, if it is a small one that can be repeated.
    """
    is_nested = is_within(run_product)
    reads = product.precision is not None
    copies = operand_copies(product.device, a, b, is_nested) if reads else NO_COPIES

    def compute(copies: OperandCopies) -> SingleTransfer | None:
        if reads and not product.is_slow:
            x, y = (with_axes(each, c.ndim) for each in (a, b))
            single = plan_single_transfer(staging, product, x, y, c, is_nested, copies)
            if single is not None:
                single.compute(x, y, c, is_nested, copies)
                return single.reusable(x, y, c)
        is_mirrored = multiply_tiles(staging, product, (a, b, c), copies, is_nested)
        if product.is_symmetric and not is_mirrored:
            mirror(c, None if is_nested else staging)
        return None

    return _computed(compute, copies)


def _computed(compute: Callable[[OperandCopies], T], copies: OperandCopies) -> T:
    """Compute a product with the device's copies of operands; without them if they are stale."""
    try:
        result = compute(copies)
    except StaleError:  # nothing is written yet to a `c` that is read
        pass
    else:
        copies.count()
        return result
    # Not while the exception is handled: its frames keep the chunks of the call that failed.
    result = compute(NO_COPIES)
    copies.drop()
    return result


def _compute(product: _Product, device: Device, space: Workspace) -> BoundCall | None:
    """Compute a product whose operands the device uses where they lie, if it can."""
    problem, alpha, a, b, beta, c, meter = product
    bound = bind_in_place(problem, device, space, takes_addresses(device))
    try:
        execute(bound, alpha, a, b, beta, c)
    except NotInPlaceError as error:
        log.debug("a product goes through transfers: %s", error)
        _compute_by_staging(product, device)
        return None  # it may be used in place next time
    meter.advance(problem.shape.work)
    return bound


def _compute_by_staging(product: _Product, device: Device) -> SingleTransfer | None:
    """Compute a product whose operands are sent to the device."""
    problem, _, a, b, _, c, _ = product
    is_slow = device.kind == "CPU" and is_long(problem, device)
    pool = any_staging(device)
    return multiply_through(pool, product.tiled(device, pool.space, is_slow), a, b, c)


def duplicate(
    x: AnyArray, order: Literal["C", "F", "K"], queue: cl.CommandQueue | None
) -> AnyArray:
    """Return a dense copy of an array; of a device array, enqueued and not waited for.

    Parameters
    ----------
    order : {"C", "F", "K"}
        The copy's order; "F" for matrices only, "K" (as it is) for contiguous arrays only.
    """
    if isinstance(x, np.ndarray):
        return np.array(x, order=order)
    assert queue is not None
    if order == "K":
        order = "C" if x.flags.c_contiguous else "F"
    target = allocated(x, x.shape, order, queue)
    if x.size:
        source = place(x).layout if order == "C" else place(x).layout.transposed()
        device = of_queue(queue)
        plan = copy_plan(source, device.limits)
        matrices = {"a": place(x), "c": place(target)}
        target.add_event(workspace(queue).run(plan, device, matrices, wait_for=x.events))
    return target
