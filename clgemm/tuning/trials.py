"""The log of trials on a device, from which later tuning continues."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from clgemm.core.cache import warn_unkept
from clgemm.core.traits import Identity
from clgemm.kernels.common.family import Choice
from clgemm.records.tuned import choice_as_dict, choice_from, kernels_hash, user_file


@dataclass(frozen=True)
class Trial:
    """One candidate, tried on the shapes of one class.

    Attributes
    ----------
    shapes : str
        The shapes that it was timed on.
    score : float
        How many times faster it was than the default choice: the geometric mean over the shapes; 0
        if it was rejected.
    gflops : float
        Billions of operations per second: the geometric mean over the shapes; 0 if rejected.
    reason : str
        Why it was rejected, "" if it was not.
    """

    shape_class: str
    shapes: str
    choice: Choice
    score: float
    gflops: float
    reason: str


class Trials:
    """The trials on a device with its driver and the present kernels.

    Parameters
    ----------
    resume : bool, optional
        Whether to read earlier trials from the file.
    """

    def __init__(self, device: Identity, resume: bool = True) -> None:
        self.device = device
        self.path = user_file(device).with_suffix(".trials")
        self.all: list[Trial] = []
        self._writable = True
        self._known: dict[tuple[str, str, Choice], Trial] = {}
        for trial in self._read() if resume else ():
            self._take(trial)

    def find(self, name: str, shapes: str, choice: Choice) -> Trial | None:
        """Return the trial of a choice on a class's shapes, or None."""
        return self._known.get((name, shapes, choice))

    def rejection(self, choice: Choice) -> str | None:
        """Return why a choice was rejected on any shapes, "" if it was not, None if unknown."""
        reasons = [trial.reason for trial in self.all if trial.choice == choice]
        return max(reasons) if reasons else None

    def add(self, trial: Trial) -> None:
        """Add a trial, also to the file. If that fails, log one warning."""
        self._take(trial)
        line = asdict(trial) | {
            "choice": choice_as_dict(trial.choice),
            "platform": self.device.platform,
            "driver": self.device.driver,
            "kernels": kernels_hash(trial.choice.config.family),
        }
        if not self._writable:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._writable = False
            warn_unkept(self.path, error, "trials are not kept")

    def _take(self, trial: Trial) -> None:
        self.all.append(trial)
        self._known[trial.shape_class, trial.shapes, trial.choice] = trial

    def _read(self) -> Iterator[Trial]:
        """Yield the trials in the file, without incomplete lines and other drivers or kernels."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            try:
                trial = self._parsed(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            if trial is not None:
                yield trial

    def _parsed(self, values: dict[str, Any]) -> Trial | None:
        choice = choice_from(*(values["choice"][name] for name in ("family", "config", "pack")))
        if (values["platform"], values["driver"], values["kernels"]) != (
            self.device.platform,
            self.device.driver,
            kernels_hash(choice.config.family),
        ):
            return None
        score, gflops = float(values["score"]), float(values["gflops"])
        if not (math.isfinite(score) and math.isfinite(gflops)):
            return None
        words = (str(values[name]) for name in ("shape_class", "shapes", "reason"))
        name, shapes, reason = words
        return Trial(name, shapes, choice, score, gflops, reason)
