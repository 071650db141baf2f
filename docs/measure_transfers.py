"""Find the fastest way to transfer host arrays: one run of a few minutes on a device.

    python docs/measure_transfers.py [--sizes 4096,8192,16384] [--minutes 5] [--device D]
                                     [--through] [--rounds 5] [--out FOLDER]

For each size it starts from the settings as they are. It goes through the groups of
`clgemm.bench.transfer_settings.GROUPS`: all settings of a group are measured in turns with what was
best before, each as ``sgemm`` into an array that is there and as ``matmul`` to a new one. What
makes the sum of both medians smaller by 2% or more is kept. So one run finds what goes well
together. At last the best settings and those of today are measured once more in turns.

A process of its own computes. If a driver ends it, the settings at fault are noted, and the run
goes on. Results are compared with those of the settings as they are. At the end, a timeline of the
best settings gives the limit: the busiest of the link's ways and the device.

Writes FOLDER/transfers_<device>.json, and a picture of each size's timeline beside it. The table
can be made a part of a page by docs/render.py. A device that shares the host's memory needs
``--through``.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
INTO, NEW = "sgemm into c", "matmul to a new array"
GAIN = 0.98  # of the time: what is kept takes no more
SMALL_REGIONS = "locking.loads=0.5,locking.results=0.5,locking.region_bytes=64KiB"
SHARE_OF_TIME = 0.85  # of all minutes, for searching; the rest is for timelines and memory


# The process that computes: one JSON line in, lines out, the last one {"done": true}.


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class Computer:
    """Products of random matrices on one device, with transfer settings that change."""

    def __init__(self, device: str | None, through: bool) -> None:
        from clgemm.bench.timeline import config_of
        from clgemm.hardware.choice import find_device, get_device, set_device

        os.environ["CLGEMM_THRESHOLD"] = "0"
        found = find_device(device) if device else get_device()
        set_device(found)
        self.device, self.plain = found, config_of(found, "" if through else None)
        self.size = 0

    def about(self) -> dict[str, Any]:
        """Return what names the device."""
        return {
            "name": self.device.name,
            "driver": str(self.device.cl_device.driver_version),
            "processors": os.cpu_count(),
        }

    def use(self, settings: str) -> None:
        """Choose transfer settings; all pinned memory is made anew."""
        from clgemm.bench.transfer_settings import changed, parsed
        from clgemm.runtime.transfer import staging

        self.device.transfer = changed(self.plain, parsed(settings))
        staging._all.pop(self.device, None)
        gc.collect()

    def operands(self, size: int) -> None:
        """Make matrices of a size, and the result with the settings as they are."""
        import clgemm

        if size == self.size:
            return
        self.size = size
        self.a = self.b = self.c = self.expected = np.empty((0, 0), np.float32)
        rng = np.random.default_rng(0)
        tile = rng.random((min(size, 1024), size), np.float32) - np.float32(0.5)
        self.a, self.b = (np.empty((size, size), np.float32) for _ in "ab")
        for start in range(0, size, len(tile)):
            stop = min(start + len(tile), size)
            self.a[start:stop] = tile[: stop - start]
            self.b[start:stop] = tile[: stop - start][::-1] * np.float32(1 + start / size)
        self.c = np.zeros((size, size), np.float32)
        self.use("")
        self.expected = clgemm.matmul(self.a, self.b)

    def product(self, mode: str) -> float:
        """Return the seconds of one product."""
        import clgemm

        begin = time.perf_counter()
        if mode == INTO:
            clgemm.sgemm(1.0, self.b.T, self.a.T, 0.0, self.c.T, overwrite_c=1)
            seconds = time.perf_counter() - begin
            result = self.c
        else:
            result = clgemm.matmul(self.a, self.b)
            seconds = time.perf_counter() - begin
        chosen = slice(None, None, max(self.size // 8, 1))
        difference = np.abs(result[chosen] - self.expected[chosen]).max()
        norm = np.abs(self.expected[chosen]).max()
        if not difference <= 1e-3 * norm:
            raise AssertionError(f"the result differs by {difference:.3g} of {norm:.3g}")
        return seconds

    def measure(
        self, size: int, alternatives: Sequence[str], rounds: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the times of each of some settings, measured in turns."""
        from clgemm.runtime.transfer import staging
        from clgemm.runtime.transfer.page_locks import locked_bytes

        self.operands(size)
        times: dict[str, dict[str, list[float]]] = {s: {INTO: [], NEW: []} for s in alternatives}
        kept: dict[str, Any] = {}
        for number in range(rounds + 1):
            for settings in alternatives:
                yield {"doing": settings}
                if settings not in kept:
                    self.use(settings)
                    kept[settings] = (
                        self.device.transfer,
                        staging.staging(self.device, self.device.transfer),
                    )
                self.device.transfer, staging._all[self.device] = kept[settings]
                for mode in (INTO, NEW):
                    seconds = self.product(mode)
                    if number:  # the first one builds and pins
                        times[settings][mode].append(seconds)
                    if locked_bytes():
                        raise AssertionError(f"{locked_bytes()} bytes are still locked")
        for settings in alternatives:
            yield {"settings": settings, "times": times[settings]}

    def timeline(
        self, size: int, settings: str, new: bool, folder: str
    ) -> Iterator[dict[str, Any]]:
        """Yield what a recorder saw of the product with some settings, and draw it."""
        from clgemm.bench.cases import Case
        from clgemm.bench.timeline import as_json, print_recording, record
        from clgemm.bench.transfer_settings import changed, parsed

        config = changed(self.plain, parsed(settings))
        found = record(self.device, config, Case("square", size, size, size), new, rounds=3)
        name = f"{size}_{'new' if new else 'into'}" + ("" if settings else "_today")
        path = Path(folder) / f"timeline_{name}.json"
        path.write_text(as_json(found, self.device) + "\n", encoding="utf-8")
        with Path(folder, f"timeline_{name}.txt").open("w", encoding="utf-8") as file:
            stdout, sys.stdout = sys.stdout, file
            try:
                print_recording(found, self.device)
            finally:
                sys.stdout = stdout
        try:
            from clgemm.bench.timeline_plot import draw

            title = f"{size} {NEW if new else INTO}: {settings or 'settings as they are'}"
            draw(found.timeline, title, str(path.with_suffix(".png")))
        except ImportError:
            pass
        yield {
            "limit_s": found.timeline.limit_ns / 1e9,
            "limits_s": {k: v / 1e9 for k, v in found.timeline.limits().items()},
            "error": found.error,
        }

    def memory(self, settings: str, count: int) -> Iterator[dict[str, Any]]:
        """Yield how much memory a number of mixed calls take in addition."""
        import clgemm
        from clgemm.runtime.transfer.page_locks import locked_bytes
        from clgemm.runtime.workspace import workspace

        self.use(settings)
        rng = np.random.default_rng(1)
        a, b, c = (rng.random((700, 700), np.float32) for _ in "abc")
        stack = np.stack([a, b])

        def calls(count: int) -> None:
            for number in range(count):
                if number % 3 == 0:
                    clgemm.matmul(a, b)
                elif number % 3 == 1:
                    clgemm.sgemm(1.0, b.T, a.T, 0.5, c.T, overwrite_c=1)
                else:
                    clgemm.matmul(stack, b)

        calls(60)
        pool = workspace(self.device.queue)._pool
        before, before_device = resident_bytes(), pool.managed_bytes
        calls(count)
        yield {
            "calls": count,
            "host_growth_bytes": resident_bytes() - before,
            "device_growth_bytes": pool.managed_bytes - before_device,
            "locked_bytes": locked_bytes(),
        }


def compute(device: str | None, through: bool) -> None:
    """Answer requests from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print is no answer
    computer = Computer(device, through)
    print(json.dumps(computer.about()), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            for answer in getattr(computer, request.pop("do"))(**request):
                print(json.dumps(answer), file=answers)
        except Exception as error:
            print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=answers)
        print(json.dumps({"done": True}), file=answers)


# The process that decides.


class Child:
    """The process that computes, started anew after it has died."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        options = ["--device", arguments.device] if arguments.device else []
        options += ["--through"] * arguments.through
        self._command = [sys.executable, str(Path(__file__).resolve()), "--child", *options]
        self._process: subprocess.Popen[str] | None = None
        self.about: dict[str, Any] = {}

    def ask(self, do: str, **request: Any) -> tuple[list[dict[str, Any]], str]:
        """Return the answers, and what went wrong, if anything."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[dict[str, Any]] = []
        try:
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
            while line := process.stdout.readline():
                answer = json.loads(line)
                if "done" in answer:
                    failures = [a["failed"] for a in answers if "failed" in a]
                    return answers, failures[0] if failures else ""
                answers.append(answer)
        except (BrokenPipeError, json.JSONDecodeError):
            pass
        self._process = None
        return answers, f"the process ended with status {process.wait()}"

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"no device: the process ended with status {process.wait()}")
        self.about = json.loads(line)
        return process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)


def joined(first: str, second: str) -> str:
    """Return settings of two texts; those of the second replace those of the first."""
    found = dict(item.split("=", 1) for item in f"{first},{second}".split(",") if item)
    return ",".join(f"{name}={value}" for name, value in found.items())


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each mode's seconds."""
    return {mode: median(seconds) for mode, seconds in times.items()}


class Search:
    """The search for the best settings of one size."""

    def __init__(self, child: Child, size: int, rounds: int, until: float) -> None:
        self.child, self.size, self.rounds, self.until = child, size, rounds, until
        self.found: list[dict[str, Any]] = []
        self.best, self.failures = "", {}  # type: ignore[var-annotated]

    def group(self, name: str, alternatives: Sequence[str]) -> None:
        """Measure settings in turns with the best so far, and keep the best."""
        wanted = [self.best, *(each and joined(self.best, each) for each in alternatives)]
        wanted = [each for each in dict.fromkeys(wanted) if each not in self.failures]
        while time.monotonic() < self.until and len(wanted) > 1 - (name == "today"):
            answers, failure = self.child.ask(
                "measure", size=self.size, alternatives=wanted, rounds=self.rounds
            )
            if not failure:
                break
            culprit = next((a["doing"] for a in reversed(answers) if "doing" in a), None)
            print(f"{self.size}: {culprit!r} failed: {failure}", file=sys.stderr)
            if not culprit:
                raise SystemExit(failure)
            self.failures[culprit] = failure
            wanted = [each for each in wanted if each != culprit]
        else:
            return
        results = {a["settings"]: medians(a["times"]) for a in answers if "times" in a}
        for settings, seconds in results.items():
            row = {"group": name, "settings": settings, **seconds}
            self.found.append(row)
            text = "  ".join(f"{mode} {1e3 * s:8.2f} ms" for mode, s in seconds.items())
            print(f"{self.size:6} {name:12} {text}  {settings or 'settings as they are'}")
        sums = {settings: sum(seconds.values()) for settings, seconds in results.items()}
        fastest = min(sums, key=lambda each: sums[each])
        if sums[fastest] <= GAIN * sums.get(self.best, float("inf")):
            self.best = fastest

    def latest(self, settings: str) -> dict[str, Any]:
        """Return the last times of some settings."""
        return next(row for row in reversed(self.found) if row["settings"] == settings)


def table(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report as a measured table for docs/render.py."""
    rows = []
    for size in report["sizes"]:
        limits = [size["timelines"].get(mode, {}).get("limit_s") for mode in (INTO, NEW)]
        both = [("as they are", size["today"]), (size["best"], size["fastest"])]
        for name, times in dict(both).items():
            cells = [
                cell
                for mode, limit in zip((INTO, NEW), limits, strict=True)
                for cell in (
                    f"{1e3 * times[mode]:.2f}",
                    f"{times[mode] / limit:.2f}" if limit else "",
                )
            ]
            rows.append([str(size["n"]), f"`{name}`" if "=" in name else name, *cells])
    about = report["device"]
    return {
        "title": "Milliseconds of products of NumPy arrays, by transfer settings",
        "device": f"{about['name']}, {about['processors']} processors",
        "driver": about["driver"],
        "date": report["date"][:10],
        "command": "python docs/measure_transfers.py",
        "columns": ["n", "settings", INTO, "times the limit", NEW, "times the limit"],
        "align": "rlrrrr",
        "rows": rows,
        "notes": ["The limit is the busiest of the link's two ways and the device."],
    }


def main() -> int:
    """Search, record timelines, check memory, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="4096,8192,16384")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device")
    parser.add_argument("--through", action="store_true")
    parser.add_argument("--groups", help="only these of the groups, by name")
    parser.add_argument("--out", type=Path, default=HERE / "measured")
    parser.add_argument("--calls", type=int, default=1000, help="mixed calls for held memory")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        compute(args.device, args.through)
        return 0
    from clgemm.bench.transfer_settings import GROUPS

    names = args.groups.split(",") if args.groups else list(GROUPS)
    sizes = [int(size) for size in args.sizes.split(",")]
    begin, child = time.monotonic(), Child(args)
    report: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "sizes": [],
    }
    for number, size in enumerate(sizes):
        share = (number + 1) / len(sizes)  # what one size leaves is for the next
        until = begin + 60 * args.minutes * SHARE_OF_TIME * share
        search = Search(child, size, args.rounds, until)
        search.group("today", ())
        if not search.found:
            continue
        for name in names:
            search.group(name, GROUPS[name])
        search.until = float("inf")
        search.group("finally", ("",))
        timelines: dict[str, Any] = {}
        args.out.mkdir(parents=True, exist_ok=True)
        for mode, settings in ((INTO, ""), (NEW, ""), (INTO, search.best), (NEW, search.best)):
            request = {"size": size, "settings": settings, "new": mode == NEW}
            answers, failure = child.ask("timeline", folder=str(args.out), **request)
            timelines[mode] = answers[0] if not failure else {"failed": failure}
        report["sizes"].append(
            {
                "n": size,
                "today": search.latest(""),
                "best": search.best or "as they are",
                "fastest": search.latest(search.best),
                "timelines": timelines,
                "failures": search.failures,
                "all": search.found,
            }
        )
    best = report["sizes"][0]["best"] if report["sizes"] else ""
    settings = joined(best if "=" in best else "", SMALL_REGIONS)
    answers, failure = child.ask("memory", settings=settings, count=args.calls)
    report["memory"] = answers[0] if not failure else {"failed": failure}
    child.close()
    report["device"] = child.about
    report["seconds"] = time.monotonic() - begin
    short = re.sub(r"\W+", "_", child.about["name"].lower()).strip("_")[:40]
    path = args.out / f"transfers_{short}.json"
    rendered = table(report)
    path.write_text(json.dumps({**rendered, "run": report}, indent=1) + "\n", encoding="utf-8")
    for row in (rendered["columns"], *rendered["rows"]):
        print(" | ".join(row))
    print(f"after {args.calls} mixed calls: {report['memory']}")
    print(f"{report['seconds']:.0f} s, {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
