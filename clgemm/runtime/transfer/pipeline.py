"""Products of host arrays on a device with memory of its own, in overlapping tiles.

A product whose resident operands turn out to have changed is made again without their copies.
"""

from __future__ import annotations

from clgemm.core.nesting import is_within
from clgemm.core.transfer import make_stream
from clgemm.runtime.loans import NOTHING_KEPT, Kept, Loan, StaleError, lend
from clgemm.runtime.operands import HostArray, with_axes
from clgemm.runtime.transfer.call import Call
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.staging import Staging

__all__ = ["TiledProduct", "multiply_through"]


def multiply_through(
    staging: Staging,
    product: TiledProduct,
    a: HostArray,
    b: HostArray,
    c: HostArray,
    call_type: type[Call] | None = None,
) -> None:
    """Multiply host arrays tile by tile; the result is in `c` on return.

    Nothing is written to `c` before all that its tiles take has been built and allocated. If a
    command fails on the device after that, `c` may hold a part of the result.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Of any strides; batches broadcast to that of `c`.
    c : float32 array, shape (..., m, n)
        Of any strides; it overlaps neither `a` nor `b`.
    call_type : type, optional
        The call's class if not `Call`: `bench --timeline` has one that records.
    """
    is_nested = is_within(_multiply)
    reads = product.precision is not None
    loan = lend(product.device, a, b, is_nested) if reads else NOTHING_KEPT
    kind = call_type or Call
    try:
        _multiply(staging, product, (a, b, c), loan, is_nested, kind)
        is_stale = False
    except StaleError:  # nothing is written yet to a `c` that is read
        is_stale = True
    if not is_stale:
        loan.count()
        return
    # Not while the exception is handled: its frames keep the chunks of the call that failed.
    _multiply(staging, product, (a, b, c), NOTHING_KEPT, is_nested, kind)
    loan.drop()


def _multiply(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    loan: Loan,
    is_nested: bool,
    call_type: type[Call],
) -> None:
    (a, b, c), kept, rows = arrays, loan.kept, product.tile_rows
    if not rows and _are_tiles_columns(c, kept, staging.config.rows):  # C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
        kept = kept[::-1]
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    repeated_a, repeated_b = (
        tuple(n == 1 or s == 0 for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        for x in (a, b)
    )
    sizes = c.shape[-2], c.shape[-1], 0 if product.precision is None else a.shape[-1]
    # The pool rounds an allocation up by a sixteenth at most.
    largest = product.device.limits.allocation_bytes // 17 * 16
    batch, repeated, keep = c.shape[:-2], (repeated_a, repeated_b), product.beta != 0
    stays = kept[0] is not None, kept[1] is not None
    plan = make_stream(batch, sizes, repeated, keep, staging.config, largest, rows, stays)
    call_type(staging, product, plan, (a, b, c), (*kept, None), loan, is_nested).run()


def _are_tiles_columns(c: HostArray, kept: tuple[Kept | None, Kept | None], least: int) -> bool:
    """Tell whether tiles are cut along the columns of C and not along its rows.

    The operand with the other axis comes in whole before the first tile, so the longer axis is
    cut. Where one operand stays on the device, the other one is cut if it is long enough: nothing
    comes in whole then.

    Parameters
    ----------
    least : int
        The fewest rows of a tile.
    """
    m, n = map(int, c.shape[-2:])
    stays_a, stays_b = (each is not None for each in kept)
    if stays_a != stays_b and (n if stays_a else m) >= 2 * least:
        return stays_a
    return n > m
