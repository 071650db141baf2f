"""Products of host arrays on devices with memory of their own, in overlapping tiles.

A product whose resident operands turn out to have changed is made again without their copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from clgemm.core.threads import is_within
from clgemm.core.transfer import GRAIN, make_stream
from clgemm.runtime.loans import NOTHING_KEPT, Kept, Loan, StaleError, lend
from clgemm.runtime.operands import HostArray, with_axes
from clgemm.runtime.transfer.at_once import AtOnceCall, plan_at_once
from clgemm.runtime.transfer.call import Call
from clgemm.runtime.transfer.mirror import mirror
from clgemm.runtime.transfer.product import TiledProduct, run_product
from clgemm.runtime.transfer.share import Share
from clgemm.runtime.transfer.staging import Staging

__all__ = ["TiledProduct", "multiply_through", "multiply_together"]

GRAINS = 8  # of each device: with fewer, rows are shared evenly, though not in whole grains


def multiply_through(
    staging: Staging,
    product: TiledProduct,
    a: HostArray,
    b: HostArray,
    c: HostArray,
) -> AtOnceCall | None:
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
    AtOnceCall or None
        What repeats the product, if it is a small one that can be repeated.
    """
    is_nested = is_within(run_product)
    reads = product.precision is not None
    loan = lend(product.device, a, b, is_nested) if reads else NOTHING_KEPT
    is_plain = reads and not (product.is_slow or any(loan.kept))
    if is_plain:
        x, y = (with_axes(each, c.ndim) for each in (a, b))
        at_once = plan_at_once(staging, product, x, y, c)
        if at_once is not None:
            at_once.make(x, y, c)
            return at_once.reusable(x, y, c)
    try:
        is_whole = _multiply(staging, product, (a, b, c), loan, is_nested)
        is_stale = False
    except StaleError:  # nothing is written yet to a `c` that is read
        is_stale = True
    if is_stale:
        # Not while the exception is handled: its frames keep the chunks of the call that failed.
        is_whole = _multiply(staging, product, (a, b, c), NOTHING_KEPT, is_nested)
        loan.drop()
    else:
        loan.count()
    if product.is_symmetric and not is_whole:
        mirror(c, None if is_nested else staging)
    return None


def multiply_together(
    stagings: Sequence[Staging],
    products: Sequence[TiledProduct],
    a: HostArray,
    b: HostArray,
    c: HostArray,
) -> bool:
    """Multiply host arrays on several devices at once; tell whether that was possible.

    Each makes some rows of C, or some matrices of a batch. If not, nothing was done. The borders
    depend on sizes and devices alone, and so do the bits.

    Parameters
    ----------
    stagings, products : sequence
        Of each device; equal configs.
    a, b, c : float32 array
        As for `multiply_through`, with as many axes; C with at least as many rows as columns.
    """
    is_matrix = c.ndim == 2
    if not is_matrix:  # the longest axis of the batch is shared
        longest = int(np.argmax(c.shape[:-2]))
        a, b, c = (np.moveaxis(x, longest, 0) for x in (a, b, c))
    count, size = len(stagings), c.shape[0]
    if count > size:
        return False
    grain = GRAIN if is_matrix and size >= GRAINS * GRAIN * count else 1
    edges = [size * i // count // grain * grain for i in range(count)]
    parts = [slice(first, stop) for first, stop in pairwise([*edges, size])]
    shares = [
        _share(staging, product, (_part(a, part), b if is_matrix else _part(b, part), c[part]))
        for staging, product, part in zip(stagings, products, parts, strict=True)
    ]
    if is_matrix and any(_order(share) != _order(shares[0]) for share in shares):
        return False
    is_nested = is_within(run_product)
    run_product(lambda: Call(shares, NOTHING_KEPT, is_nested, has_common_b=is_matrix).run())
    return True


def _part(x: HostArray, part: slice) -> HostArray:
    """Return a part along the first axis; all of it if that is repeated."""
    return x[part] if x.shape[0] > 1 else x


def _order(share: Share) -> list[tuple[object, ...]]:
    """Return the order of a share's tiles, in which B is sent."""
    return [(t.blocks[1], t.slots, t.loads, t.first, t.last) for t in share.tiles]


def _multiply(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    loan: Loan,
    is_nested: bool,
) -> bool:
    """Multiply tile by tile; tell whether each tile had whole matrices."""
    (a, b, c), kept = arrays, loan.kept
    if _are_tiles_columns(c, kept, staging.config.rows):  # C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
        kept = kept[::-1]
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    shares = [_share(staging, product, (a, b, c), kept)]
    run_product(lambda: Call(shares, loan, is_nested).run())
    return shares[0].has_whole_tiles


def _share(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    kept: tuple[Kept | None, Kept | None] = (None, None),
) -> Share:
    """Return what one device makes, with its tiles."""
    a, b, c = arrays
    repeated_a, repeated_b = (
        tuple(n == 1 or s == 0 for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        for x in (a, b)
    )
    sizes = c.shape[-2], c.shape[-1], 0 if product.precision is None else a.shape[-1]
    # The pool rounds an allocation up by a sixteenth at most.
    largest = product.device.limits.allocation_bytes // 17 * 16
    batch, repeated, keep = c.shape[:-2], (repeated_a, repeated_b), product.beta != 0
    stays = kept[0] is not None, kept[1] is not None
    # The device makes a whole result symmetric in less time than the host does.
    rows = c.shape[-2] if product.is_symmetric else 0
    plan = make_stream(batch, sizes, repeated, keep, staging.config, largest, rows, stays)
    return Share(staging, product, plan, arrays, (*kept, None))


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
