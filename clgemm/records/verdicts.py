"""Verdicts: whether a config gave right results on this device, as stored on disk.

A child process validates a config once, since a compiler may abort or a GPU may hang on it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable

from clgemm.core.cache import recall, remember
from clgemm.core.child import Child, ChildDiedError, RequestError
from clgemm.core.identity import Identity
from clgemm.core.nesting import non_reentrant
from clgemm.kernels.common.choice import Choice
from clgemm.records.record import choice_as_dict, kernels_hash

__all__ = ["rejection", "validated_on", "verdict_on"]

log = logging.getLogger(__name__)

START_SECONDS = 120.0
VALIDATION_SECONDS = 120.0
_lock = threading.RLock()


def rejection(child: Child, choice: Choice, seconds: float = VALIDATION_SECONDS) -> str:
    """Let a child build and check a choice; return why it is rejected, "" if it is not."""
    try:
        if not child.alive:
            child.ask("ready", timeout_s=START_SECONDS)
        return str(child.ask("validate", timeout_s=seconds, choice=choice_as_dict(choice)))
    except RequestError as error:
        return f"does not run: {error}"
    except (ChildDiedError, OSError) as error:
        return str(error)


@non_reentrant
def validated_on(device: Identity, choice: Choice, child: Callable[[], Child]) -> bool:
    """Tell whether a choice gives right results on this device, driver and kernels.

    The first call validates it and stores the verdict. If the verdict cannot be stored, the choice
    is neither validated nor used: every process would validate it again.

    Raises
    ------
    NestedCallError
        If this thread is already inside such a call.
    """
    key = _key(device, choice)
    with _lock:
        verdict = recall(key)
        # False is stored first, in case the trial takes the machine down.
        if not isinstance(verdict, bool) and remember(key, False):
            log.info("trying %s on %s", choice.config, device.name)
            try:
                with child() as trial:
                    reason = rejection(trial, choice)
            except BaseException:
                remember(key, None)  # an interruption says nothing about the choice
                raise
            if reason:
                log.warning("%s is not used on %s: %s", choice.config, device.name, reason)
            verdict = not reason
            remember(key, verdict)
    return verdict is True


def verdict_on(device: Identity, choice: Choice) -> bool | None:
    """Return the stored verdict on a choice for this device, driver and kernels, or None."""
    verdict = recall(_key(device, choice))
    return verdict if isinstance(verdict, bool) else None


def _key(device: Identity, choice: Choice) -> str:
    family = choice.config.family
    text = json.dumps(choice_as_dict(choice), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    where = f"{device.name}, {device.platform}, driver {device.driver}"
    return f"{where}: {family} {digest}, kernels {kernels_hash(family)}"
