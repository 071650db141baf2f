"""Render the measured tables of README.md and of docs/ from the files in docs/measured/.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. NAME is a file of
docs/measured/ with rows in it, or one of `VIEWS` of what ``bench`` and ``ladder`` wrote there and
``verify`` in verified/.

    python docs/render.py            # rewrite the tables where they stand
    python docs/render.py --check    # exit status 1 if one of them is out of date
    python docs/render.py NAME ...   # print these tables, of which some are on no page
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "docs" / "measured"
VERIFIED = ROOT / "verified"
UNVERIFIED = "unverified"  # the file that names what no GPU has verified yet
LADDER = ROOT / "clgemm" / "ladder" / "measured"  # shipped for the interactive page
DETAILS = "details"  # what the rows of a table were made of, for those who look closer
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
RULES = {"l": "---", "r": "--:"}


class Table(NamedTuple):
    """A measured table, and where it comes from.

    Attributes
    ----------
    title, device, driver, date, command : str
    columns : list of str
    align : str
        "l" or "r" for each column.
    rows : list of list of str
    notes : list of str
        Sentences.
    """

    title: str
    device: str
    driver: str
    date: str
    command: str
    columns: list[str]
    align: str
    rows: list[list[str]]
    notes: list[str]

    def text(self) -> str:
        """Return the table as Markdown, its provenance below it."""
        lines = [self.columns, [RULES[side] for side in self.align], *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        command = self.command
        if command.startswith("python"):
            typed, comma, rest = command.partition(", ")
            command = f"`{typed}`{comma}{rest}"
        origin = (
            f"Device: {self.device}. Driver: {self.driver}. Date: {self.date}. Command: {command}."
        )
        if self.device == self.command:
            origin = f"Device, driver, date and command: {self.device}."
        notes = " ".join(filter(None, [origin, *self.notes]))
        return f"**{self.title}**\n\n{table}\n\n{notes}\n"


def loaded(name: str) -> Any:
    """Return what a file of docs/measured/ holds."""
    return json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))


def milliseconds(seconds: float) -> str:
    """Return a time with two significant digits, or three from 100 on."""
    digits = 3 if seconds >= 0.1 else 2
    return f"{seconds * 1e3:#.{digits}g}".rstrip(".")


def sizes(label: str) -> str:
    """Return a case's label as a reader writes it: with a sign of multiplication."""
    return re.sub(r"(?<=\d)x(?=\d)", " × ", label)


def outcome(side: Iterable[dict[str, Any]]) -> list[str]:
    """Return clgemm's time, the peer's, and how many times as fast clgemm is."""
    own, peer, *_ = side
    return [
        *(milliseconds(timed["time_s"]["median"]) for timed in (own, peer)),
        f"{peer['clgemm_is_faster_by']['median']:.2f}",
    ]


def of_bench(title: str, found: dict[str, Any], **shape: Any) -> Table:
    """Return a table of what ``bench`` wrote, with the device that it names."""
    device = found["device"]
    return Table(
        title=title,
        device=device["name"],
        driver=device["driver"],
        date=found["date"][:10],
        command="python -m clgemm bench --json FILE --plot FILE",
        **shape,
    )


def speed(is_summary: bool = False) -> Table:
    """Return what ``bench`` measured on the H200, from NumPy arrays and on the device."""
    found = loaded("bench_h200")
    rows = [
        [sizes(case["label"]), *outcome(case["host"]), *outcome(case["device"])]
        for case in found["cases"]
        if not is_summary or case["label"] in SUMMARY
    ]
    host, device = found["numpy"], found["peers"]["cuBLAS"].split(",")[0]
    return of_bench(
        "Milliseconds of clgemm and of its peers, and how many times as fast clgemm is",
        found,
        columns=[
            *("n, or m × n × k", "NumPy arrays: clgemm", "NumPy", "ratio"),
            *("on the device: clgemm", "cuBLAS FP32", "ratio"),
        ],
        align="lrrrrrr",
        rows=rows,
        notes=[
            "`matmul` in the default mode, always on the device.",
            "NumPy arrays: both transfers count.",
            "A ratio is the median over the rounds' ratios.",
            f"NumPy {host['version']}: {host['blas']} with {host['threads']} threads.",
            f"cuBLAS: through {device}, TF32 off.",
            '"100 of 128": a batch of 100 matrices of 128 a side. T: transposed.',
            "" if is_summary else LAYOUTS,
        ],
    )


SUMMARY = (
    *("64", "256", "1024", "2048", "4096", "8192", "1000x777x3000", "1024 TT", "1x4096x4096"),
    *("64x4096x4096", "4096x4096x64", "64x64x100000", "100 of 128", "1000 of 32"),
)  # of the cases, those on the page
LAYOUTS = "N: plain. S: every other row. D: every other row and column."


def ladder() -> Table:
    """Return what ``ladder`` measured on the H200, and the tutorial's own figures."""
    (found,) = json.loads((LADDER / "nvidia_h200.json").read_text(encoding="utf-8"))
    rungs = [
        [
            str(rung["rung"]),
            rung["title"] + (f" ({dtype})" if dtype != "float32" else ""),
            f"{rung['gflops']:,.0f}",
            f"{rung['kepler_gflops']:,}" if rung["kepler_gflops"] else "",
        ]
        for rung in found["rungs"]
        for dtype in [rung.get("dtype", "float32")]
        if rung["toolchain"] == "OpenCL"
    ]
    peers = [["", peer["name"], f"{peer['gflops']:,.0f}", ""] for peer in found["peers"]]
    return Table(
        title="GFLOP/s of the ladder's kernels at 4096 × 4096 × 4096",
        device=found["device"],
        driver=found["driver"],
        date=found["date"],
        command="python -m clgemm ladder --json FILE --plot FILE",
        columns=["", "rung", "here", "tutorial, Tesla K40m"],
        align="llrr",
        rows=[*rungs, *peers],
        notes=["Medians by the device's clock. The tutorial ran rungs 8 to 10 through CUDA."],
    )


def verified_files() -> list[dict[str, Any]]:
    """Return what ``verify`` wrote, device by device."""
    files = sorted(file for file in VERIFIED.glob("*.json") if file.stem != UNVERIFIED)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def of_verify(title: str, **shape: Any) -> Table:
    """Return a table of what ``verify`` wrote, device by device."""
    found = verified_files()
    return Table(
        title=title,
        device="as in the table",
        driver="; ".join(each["device"]["driver"] for each in found),
        date=max(each["date"] for each in found),
        command="python -m clgemm verify",
        **shape,
    )


def runtime(found: dict[str, Any]) -> str:
    """Return the runtime of a device and its version, in short."""
    name, _, version = found["device"]["platform"].partition("  ")[0].partition(",")
    short = {"Portable Computing Language": "PoCL"}.get(name, name)
    version = version.strip().removeprefix("OpenCL ").removeprefix("3.0 PoCL ")
    return f"{short} {version}"


def verified() -> Table:
    """Return the matrix of families, precisions and devices."""
    found = verified_files()
    text = (VERIFIED / f"{UNVERIFIED}.json").read_text(encoding="utf-8")
    waiting = {family: why for why, families in json.loads(text).items() for family in families}
    here = {name: each["precisions"] for run in found for name, each in run["families"].items()}
    pairs = [(name, mode) for name, modes in here.items() for mode in modes]
    pairs += [(name, "all") for name in waiting if name not in here]
    rows = [
        [
            *(name, mode),
            *(_verified_cell(run, name, mode) for run in found),
            "not verified" if name in waiting else _by_gpu(found, name),
        ]
        for name, mode in sorted(pairs)
    ]
    return of_verify(
        "Largest error in units of the bound, and products, by kernel family and precision",
        columns=[
            *("family", "precision"),
            *(f"{x['device']['name']}, {runtime(x)}" for x in found),
            "by any GPU",
        ],
        align="ll" + "r" * len(found) + "l",
        rows=rows,
        notes=[
            "An empty field: the device is not given the family.",
            '"strict" stands for every precision where a family has only one.',
            f"Not verified: {'; '.join(dict.fromkeys(waiting.values()))}." if waiting else "",
        ],
    )


def _verified_cell(run: dict[str, Any], name: str, mode: str) -> str:
    counts = run["families"].get(name, {}).get("precisions", {}).get(mode)
    if counts is None:
        return ""
    if counts["failures"]:
        return f"{counts['failures']:,} of {counts['products']:,} wrong"
    return f"{counts['worst']:.2f} in {counts['products']:,}"


def _by_gpu(found: list[dict[str, Any]], name: str) -> str:
    """Return when a GPU verified a family, "" if none did."""
    dates = [x["date"] for x in found if x["device"]["kind"] == "GPU" and name in x["families"]]
    return f"verified {max(dates)}" if dates else ""


def verify_runs() -> Table:
    """Return how long each device was verified, and by how many products."""
    rows = []
    for found in verified_files():
        counts = [x for each in found["families"].values() for x in each["precisions"].values()]
        counts += found["contract"].values()
        rows.append(
            [
                found["device"]["name"],
                f"{runtime(found)}, driver {found['device']['driver']}",
                *(found["date"], f"{found['minutes']:g}"),
                f"{sum(x['products'] for x in counts):,}",
                f"{sum(x['failures'] for x in counts):,}",
                f"{max(x['worst'] or 0 for x in counts):.2f}",
                str(found["seed"]),
            ]
        )
    return of_verify(
        "Verified devices",
        columns=[
            "device",
            "runtime",
            "date",
            "minutes",
            "products",
            "wrong",
            "largest error",
            "seed",
        ],
        align="lllrrrrr",
        rows=rows,
        notes=["Largest error: in units of the bound."],
    )


def of_survey(found: dict[str, Any]) -> Table:
    """Return a table of what ``bench --survey`` wrote: the ratios by work and by smallest side."""
    survey, device = found["survey"], found["device"]
    modes = {"host": "NumPy arrays", "device": "on the device"}
    peers = [(mode, peer) for mode in modes for peer in found["summary"].get(mode, {})]
    summaries = [found["summary"][mode][peer] for mode, peer in peers]
    columns = [f"{modes[mode]}: {peer}" for mode, peer in peers]
    if found["regret"]["all"]:
        summaries.append(found["regret"])
        columns.append("regret of `matmul`")
    groups: dict[tuple[str, str], None] = {}
    for summary in summaries:
        groups |= {(by, name): None for by in SURVEY_GROUPS for name in summary[by]}
    rows = [
        [
            name if by == "all" else f"{by}: {name}",
            str(max(summary[by][name]["count"] for summary in summaries if name in summary[by])),
            *(ratios_of(summary[by].get(name)) for summary in summaries),
        ]
        for by in SURVEY_GROUPS
        for name in (name for group, name in groups if group == by)
    ]
    low, high = survey["sides"]
    return Table(
        title="Random products: how many times as fast clgemm is",
        device=device["name"],
        driver=device["driver"],
        date=found["date"][:10],
        command=f"python -m clgemm bench --survey {survey['count']} --seed {survey['seed']} "
        f"--sides {low}:{high} --work {survey['work'][0]}:{survey['work'][1]} "
        f"--data {survey['data']} --precision {survey['precision']} --json FILE",
        columns=["", "products", *columns],
        align="l" + "r" * (1 + len(columns)),
        rows=rows,
        notes=[
            "Geometric mean (5th to 95th percentile).",
            *(f"{name}: {about}." for name, about in found["peers"].items()),
            f"{found['threads']} threads of the host's BLAS.",
            *(
                f"Greatest regret: {each['greatest']:.2f}."
                for each in found["regret"]["all"].values()
            ),
        ],
    )


SURVEY_GROUPS = ("all", "multiply-adds", "smallest side")


def ratios_of(summary: dict[str, float] | None) -> str:
    """Return the geometric mean of ratios, and their 5th and 95th percentiles."""
    if summary is None:
        return ""
    return f"{summary['mean']:.2f} ({summary['low']:.2f} to {summary['high']:.2f})"


def whole_programs(is_summary: bool = False) -> Table:
    """Return how fast whole programs are with accelerated NumPy."""
    found = loaded("whole_programs")
    kinds = "cold", "warm", "control"
    both = found.pop("programs"), found.pop("gpu")
    rows, medians = [], []
    for here, beside in zip(*both, strict=True):
        ratios = [median(each[kind]) for each in (here, beside) for kind in kinds]
        medians.append(ratios)
        rows.append([here["name"], f"{median(here['plain_s']):.2f}", *map("{:.2f}".format, ratios)])
    if is_summary:
        rows = []
    for title, reduce in (("geometric mean", geometric_mean), ("least", min), ("greatest", max)):
        columns = zip(*medians, strict=True)
        rows.append([title, "", *(f"{reduce(column):.2f}" for column in columns)])
    columns = ["program", "plain s", "empty caches", "filled", "control"]
    columns += ["H200: empty", "filled", "control"]
    if is_summary:
        columns[:2] = [f"of {len(medians)} programs"]
        rows = [[row[0], *row[2:]] for row in rows]
    return Table(**found, columns=columns, align="l" + "r" * (len(columns) - 1), rows=rows)


def dtypes() -> Table:
    """Return how fast products of integers, booleans and float16 are on CPUs."""
    found = loaded("dtypes")
    runtimes = found.pop("runtimes")
    names = list(dict.fromkeys(each["dtype"] for each in runtimes[0]))
    sizes = sorted({each["n"] for each in runtimes[0]})
    ratios = {
        (number, each["dtype"], each["n"]): each["numpy_ms"] / each["ms"]
        for number, runtime in enumerate(runtimes)
        for each in runtime
    }
    rows = [
        [f"`{name}`", *(" / ".join(f"{ratios[r, name, n]:.3g}" for r in (0, 1)) for n in sizes)]
        for name in names
    ]
    columns = ["dtype", *map(str, sizes)]
    return Table(**found, columns=columns, align="l" + "r" * len(sizes), rows=rows)


def compiled() -> Table:
    """Return what the default kernels take of GPUs that they were only compiled for."""
    found = loaded("compiled")
    rows = [
        [
            f"{each['maker']} {each['title']}",
            f"`{name}`",
            *(str(each[column]) for column in ("kernels", "registers", "in_memory", "groups")),
        ]
        for name, each in found["summaries"].items()
    ]
    return Table(
        title="Default kernels on GPUs that were not at hand: compiled, not run",
        device="as in the table",
        driver="; ".join(dict.fromkeys(found["compilers"].values())),
        date=found["date"],
        command="python docs/offline_compile.py",
        columns=[
            *("GPU", "target", "kernels", "most registers"),
            *("kernels that spill", "least work-groups on a unit"),
        ],
        align="llrrrr",
        rows=rows,
        notes=[
            "Registers: of a work-item. Kernels in OpenCL C alone, for 100 random products of",
            "float32, and products of other dtypes.",
        ],
    )


BOUNDS = {
    "fma": "arithmetic",
    "local": "local memory",
    "cache": "the cache",
    "issue": "issuing instructions",
    "bank 0": "reading registers",
    "bank 1": "reading registers",
}  # units of docs/predicted_share.py, as a reader calls them


def predicted_share() -> Table:
    """Return the predicted shares of peak of GPUs that were not at hand."""
    found = loaded("predicted_share")
    rows = [
        [
            *(each["title"], f"`{name}`", each["config"].removeprefix("tiled ")),
            *(str(each["packed"]), str(each["groups"])),
            *(BOUNDS[each["bound"]], f"{each['busy']:.0%}"),
            *(f"{each[column]:.0%}" for column in ("product", "share")),
        ]
        for name, each in found["targets"].items()
    ]
    return Table(
        title="Predicted share of peak of float32 at 4096 × 4096 × 4096",
        device="as in the table",
        driver="; ".join(found["compilers"].values()),
        date=found["date"],
        command="python docs/predicted_share.py",
        columns=[
            *("GPU", "target", "tiles", "packed operands", "work-groups on a unit"),
            *("busiest", "of its time", "the product", "with packing"),
        ],
        align="lllrrlrrr",
        rows=rows,
        notes=[
            "Tiles: rows x columns x depth of a work-group / rows x columns of a work-item /",
            "work-items that share a block / buffers. The peaks of `gfx90a`, `gfx1100` and",
            "`gfx1201` count two multiply-adds per instruction and lane.",
        ],
    )


def predicted_share_test() -> Table:
    """Return predicted and measured shares of the configs that the prediction was tested with."""
    found = loaded("predicted_share")
    test = found["test"]
    rows = [
        [
            each["config"].removeprefix("tiled ") + " (clang spills)" * each["clang_spills"],
            BOUNDS[each["bound"]],
            f"{each['measured']:.1%}",
            *(
                text
                for code in ("driver", "clang")
                for text in (f"{each[code]:.1%}", f"{each[code] / each['measured']:.2f}")
            ),
        ]
        for each in test["rows"]
    ]
    return Table(
        title="Predicted and measured share of peak of ten configs at 4096 × 4096 × 4096",
        device=test["device"],
        driver=test["driver"],
        date=test["date"],
        command="python docs/predicted_share.py --measure FILE, and the same with --test FILE",
        columns=[
            *("tiles", "busiest", "measured", "from the driver's code", "ratio"),
            *("from clang's code", "ratio"),
        ],
        align="llrrrrr",
        rows=rows,
        notes=[
            "Of 66.9 TFLOP/s, at 1.98 GHz. Ratio: predicted over measured. Packing is included."
        ],
    )


def shared_friends() -> Table:
    """Return how long a script of integer products takes, plain and accelerated."""
    found = loaded("shared_friends")
    plain, accelerated = found.pop("plain_s"), found.pop("accelerated_s")
    rows = [
        [
            name,
            f"{median(seconds):.1f}",
            f"{min(seconds):.1f} to {max(seconds):.1f}",
            f"{median(plain) / median(seconds):.1f}",
        ]
        for name, seconds in (("NumPy", plain), ("accelerated", accelerated))
    ]
    columns = ["", "seconds", "least to most", "times as fast"]
    return Table(**found, columns=columns, align="lrrr", rows=rows)


def syrk() -> Table:
    """Return how fast products of a matrix by its own transpose are, as ``bench --syrk`` timed."""
    found = loaded("syrk")
    runs = found.pop("runs")
    rows = []
    for each in zip(*runs, strict=True):
        ours, one = ([run["ms"][name] for run in each] for name in ("x @ x.T", "ssyrk"))
        theirs = [[run["ms"][peer] for run in each] for peer in ("NumPy", "SciPy")]
        rows.append(
            [
                f"{each[0]['n']} × {each[0]['k']}",
                *(f"{median(ms):.3g}" for ms in (ours, theirs[0], one, theirs[1])),
                *(
                    f"{median(pair) / median(mine):.2f}"
                    for pair, mine in zip(theirs, (ours, one), strict=True)
                ),
            ]
        )
    columns = ["n × k", "`x @ x.T`, ms", "NumPy", "`ssyrk`", "SciPy", "NumPy ratio", "SciPy ratio"]
    return Table(**found, columns=columns, align="l" + "r" * 6, rows=rows)


def gains() -> Table:
    """Return what three users gain, each figure from the table that it links to."""
    pocl, _, intel = next(row for row in dtypes().rows if row[0] == "`int32`")[4].partition(" / ")
    network = loaded("accel_network")
    cores = "two cores of a Xeon"
    rows = [
        [
            "int32 matrices, 1000 a side, on a processor",
            "`clgemm.gemm(1, a, b)`",
            f"{pocl} (PoCL), {intel} (Intel's runtime)",
            f"[{cores}](docs/performance.md#integers-booleans-and-float16)",
        ],
        [
            "a network in plain NumPy, 8192 wide, on a machine with a GPU",
            "`python -m clgemm.accel train.py`",
            network["rows"][0][4],
            f"[{network['device']}](docs/accelerating.md#what-it-gains)",
        ],
        [
            "an unmodified script that multiplies integers",
            "`python -m clgemm.accel script.py`",
            shared_friends().rows[1][3],
            f"[{cores}](docs/accelerating.md#what-it-gains)",
        ],
    ]
    columns = ["you have", "you type", "times as fast as NumPy", "measured on"]
    origin = dict.fromkeys(("device", "driver", "date", "command"), "behind the links")
    return Table(
        "What three users gain", **origin, columns=columns, align="llll", rows=rows, notes=[]
    )


VIEWS: dict[str, Callable[[], Table]] = {
    "compiled": compiled,
    "predicted_share": predicted_share,
    "predicted_share_test": predicted_share_test,
    "whole_programs": whole_programs,
    "whole_programs_summary": lambda: whole_programs(is_summary=True),
    "dtypes": dtypes,
    "bench_h200": speed,
    "bench_h200_summary": lambda: speed(is_summary=True),
    "gains": gains,
    "shared_friends": shared_friends,
    "syrk": syrk,
    "ladder": ladder,
    "verified": verified,
    "verify_runs": verify_runs,
}


def table(name: str) -> Table:
    """Return a table by the name that stands in a page."""
    if name in VIEWS:
        return VIEWS[name]()
    found = loaded(name)
    if "survey" in found:
        return of_survey(found)
    found.pop(DETAILS, None)
    return Table(**found)


def rendered(page: str) -> str:
    """Return a page's text with its tables made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{table(found[2]).text()}{found[3]}", page)


def pages() -> list[Path]:
    """Return the pages that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main(arguments: list[str]) -> int:
    """Rewrite the tables, only say which pages are out of date, or print the tables named."""
    names = [argument for argument in arguments if argument != "--check"]
    if names:
        print("\n".join(table(name).text() for name in names), end="")
        return 0
    stale = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := rendered(text)) == text:
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{page.relative_to(ROOT)}: python docs/render.py makes its tables anew")
        else:
            page.write_text(new, encoding="utf-8")
    return int(stale > 0 and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
