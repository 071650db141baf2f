"""A trial with faults in some configs: of the direct family, by their rows, and of int32."""

from __future__ import annotations

import os
import sys
import time

from clgemm.core.child import serve
from clgemm.runtime import programs
from clgemm.tuning.trial import Server

WRONG, HANGS, ABORTS, NO_BUILD = 3, 6, 8, 7
WRONG_UNROLL = 4
text_of, build = programs.text_of, programs.build


def planted(kind):
    """Return the source with a column left out at the edges, or with an endless loop."""
    source = text_of(kind)
    if kind.entry in ("exact_product", "exact_tiles"):
        added = f"adds + (UNROLL == {WRONG_UNROLL}))"
        assert "adds);" in source
        return source.replace("adds);", f"{added};")
    if kind.family != "direct":
        return source
    edge = "j < min(WIDTH, columns)"
    assert edge in source
    source = source.replace(edge, f"j < (WORK_M == {WRONG} && columns < WIDTH ? 0 : 16) && {edge}")
    loop = "for (int p = 0; p < k; p++) {"
    assert loop in source
    forever = f"if (WORK_M == {HANGS}) while (*(__global volatile float*)c != 12345.5f);\n"
    error = f'#if WORK_M == {NO_BUILD}\n#error "no such type"\n#endif\n'
    return error + source.replace(loop, forever + loop)


def built(device, source, macros, *others, **keywords):
    """Build like a compiler that aborts the process, or like one that does not end."""
    if ("WORK_M", HANGS) in macros and "llvmpipe" in device.name:
        time.sleep(600)
    if ("WORK_M", ABORTS) in macros and "direct_product" in source:
        print("LLVM ERROR: Cannot select", file=sys.stderr)
        os.abort()
    return build(device, source, macros, *others, **keywords)


if __name__ == "__main__":  # in the child only
    programs.text_of, programs.build = planted, built
    serve(Server(sys.argv[1:]))
