"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """Return a table as HTML; its texts are escaped.

    Parameters
    ----------
    heads : sequence of str
        The headings of the columns.
    rows : iterable of sequences of str
        The cells. A row of one cell is a heading across all columns.
    title : str, optional
        A sentence above it.
    """
    above = f"<p>{escape(title)}</p>" if title else ""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{_cells(row, len(heads))}</tr>" for row in rows)
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str], columns: int) -> str:
    if len(row) == 1:
        return f'<th colspan="{columns}" style="text-align: left">{escape(row[0])}</th>'
    return "".join(f"<td>{escape(text)}</td>" for text in row)
