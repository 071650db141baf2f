"""The interactive page, in one file: measurements, the rungs' code, and pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from importlib import resources
from typing import Any

from clgemm.ladder.rung import Rung, Shape, count
from clgemm.ladder.rungs import RUNGS, AsynchronousCopies, WideLocalReads
from clgemm.ladder.story import kernel_text, step, story, wgsl_names

KEPLER_PEERS: dict[str, float] = {"cuBLAS": 3056, "clBlas, tuned": 798, "clBlas": 572}
# Parameters that the picture does not show.
COUNTED = 4096  # the size for rungs that were not measured on a device; its tiles all fit
HIDDEN = {"transpose", "pad", "read_only", "shuffle", "lanes", "swizzle", "split", "reduce"}
HIDDEN |= {"stages", "work_groups", "tensor", "pack"}
SUPPORT = ("transpose.wgsl", "pad.wgsl")


def shipped() -> list[dict[str, Any]]:
    """Return the measurements that come with clgemm, as ``ladder --json`` writes them."""
    folder = resources.files("clgemm").joinpath("ladder", "measured")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return [climb for file in files for climb in json.loads(file.read_text(encoding="utf-8"))]


def page(climbs: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    climbs : iterable of dict
        Measurements as ``ladder --json`` writes them. The page shows the first one at the start,
        and adds the tutorial's figures at the end.

    Raises
    ------
    ValueError
        If a measurement has parameters that its rung does not have.
    """
    data = {
        "rungs": [_rung(kind) for kind in RUNGS],
        "climbs": [*map(_climb, climbs), _kepler()],
        "support": {name: kernel_text(f"wgsl/{name}") for name in SUPPORT},
    }
    parts = {"data": json.dumps(data).replace("</", "<\\/")}
    folder = resources.files("clgemm").joinpath("ladder", "browser")

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return parts[name] if name in parts else folder.joinpath(name).read_text("utf-8").rstrip()

    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", part, template)


def _rung(kind: type[Rung]) -> dict[str, Any]:
    said = story(kind)
    names = {field.name for field in fields(kind)}
    sample = kind(**kind.presets[0])
    wgsl = f"wgsl/{kind.file.removesuffix('.cl')}.wgsl"
    device_copies = issubclass(kind, AsynchronousCopies)
    is_wide = "width" in names and not {"tile_k"} & names  # C's vectors are adjacent rows
    return {
        "number": kind.number,
        "title": kind.label(),
        "dtype": kind.dtype.name,
        "file": kind.file,
        "before": kind.before(),
        "kepler": kind.kepler_gflops,
        "layout": said.layout,
        "sections": [
            [name, [[block.text, block.is_picture] for block in blocks]]
            for name, blocks in said.sections.items()
        ],
        "code": [list(line) for line in step(kind)],
        "wgsl": kernel_text(wgsl) if wgsl in wgsl_names() else None,
        "parameters": sorted(names - HIDDEN),
        "pictured": kind.pictured,
        "local": sample.local_memory_bytes > 0,
        "wide_rows": is_wide,
        "wide_columns": is_wide and "work_n" in names,
        "in_vectors": issubclass(kind, WideLocalReads),
        "b_along_k": "transpose" not in names,
        "counted": {"n": COUNTED, **_counted(sample, COUNTED)},
        "same_sides": getattr(kind, "same_sides", False),
        "device_copies": device_copies,
    }


def _climb(climb: Mapping[str, Any]) -> dict[str, Any]:
    n = climb["n"]
    known = (("driver", "Driver "), ("date", "Date "), ("remark", ""))
    origin = [word + climb[key] for key, word in known if climb.get(key)]
    return {
        "name": climb["device"],
        "n": n,
        "note": ". ".join([*origin, "Medians by the device's clock, through OpenCL."]),
        "rungs": {
            found["rung"]: _result(found, n)
            for found in climb["rungs"]
            if found["toolchain"] == "OpenCL"
        },
        "refused": {
            found["rung"]: said + found["reason"]
            for said, key in (("not run: ", "refused"), ("cannot run here: ", "absent"))
            for found in climb.get(key, ())
            if found["toolchain"] == "OpenCL"
        },
        "peers": [{"name": p["name"], "gflops": p["gflops"]} for p in climb["peers"]],
    }


def _result(found: Mapping[str, Any], n: int) -> dict[str, Any]:
    kind, parameters = RUNGS[found["rung"] - 1], found["parameters"]
    if unknown := set(parameters) - {field.name for field in fields(kind)}:
        raise ValueError(f"rung {kind.number} has no parameter {', '.join(sorted(unknown))}")
    figures = {"gflops": found["gflops"], "correct": found["correct"]}
    return {**figures, **_counted(kind(**parameters), n)}


def _counted(rung: Rung, n: int) -> dict[str, Any]:
    counts = count(rung, Shape(n, n, n))
    return {
        "parameters": ", ".join(f"{name}={value}" for name, value in asdict(rung).items()),
        "counts": {
            **asdict(counts),
            "flops_per_byte": counts.flops_per_byte,
            "flops_per_local_byte": counts.flops_per_local_byte,
        },
    }


def _kepler() -> dict[str, Any]:
    return {
        "name": "Tesla K40m",
        "n": 4096,
        "note": "The tutorial's figures of 2014. Steps 8 to 10 ran through CUDA.",
        "rungs": {
            kind.number: {"gflops": kind.kepler_gflops} for kind in RUNGS if kind.kepler_gflops
        },
        "refused": {},
        "peers": [{"name": name, "gflops": gflops} for name, gflops in KEPLER_PEERS.items()],
    }
