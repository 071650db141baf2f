"""The records of verification that the repository keeps, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from strategies import GPU_LIMITS

from clgemm.core.traits import Identity, Traits
from clgemm.kernels import FAMILIES
from clgemm.records import verified
from clgemm.records.tuned import kernels_hash
from clgemm.records.verified import (
    COMMAND,
    Verified,
    all_verified,
    file_name,
    read,
    verification,
)

FOLDER = Path(__file__).resolve().parents[2] / "verified"
UNVERIFIED = FOLDER / "unverified.json"
FILES = sorted(file for file in FOLDER.glob("*.json") if file != UNVERIFIED)
GPUS = [
    Traits(GPU_LIMITS, "GPU", is_nvidia=nvidia, capability=capability)
    for nvidia, capability in ((True, (9, 0)), (True, (8, 0)), (True, (7, 5)), (False, (0, 0)))
]
ON_GPUS = {family.name for family in FAMILIES if any(family.runs_on(x) for x in GPUS)}
H200 = Identity("NVIDIA H200", "GPU", "NVIDIA", "NVIDIA CUDA, 13", "580", "compute capability 9.0")
COUNTS = {"strict": {"products": 5.0, "failures": 0.0, "worst": 0.25}}
TILED = Verified(H200, "tiled", kernels_hash("tiled"), COUNTS, "2026-11-01")


def on_gpu(record):
    """Return whether the device is a GPU and not a program that takes its place, as Mesa's does."""
    return record.device.kind == "GPU" and "llvmpipe" not in record.device.name


def outdated_on_gpus(records):
    """Return a line for each family whose kernels differ from those last verified on a GPU."""
    lines = []
    for family in dict.fromkeys(r.family for r in records if on_gpu(r) and r.passed):
        own = [r for r in records if r.family == family and on_gpu(r) and r.passed]
        if not any(r.is_current for r in own):
            last = max(own, key=lambda r: r.date)
            lines.append(
                f"the kernels of {family} changed since {last.device.name} verified them on "
                f"{last.date}: run '{COMMAND}' on a GPU and keep the file that it writes"
            )
    return lines


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_whole(file):
    """A file has the name of its device, known families, and no wrong product."""
    found = read(file.read_text(encoding="utf-8"))
    assert found
    for record in found:
        assert file.name == file_name(record.device)
        assert record.family in {family.name for family in FAMILIES}
        assert record.passed
        assert all(0 <= counts["worst"] <= 1 for counts in record.precisions.values())
    assert [record for record in found if record not in all_verified(FOLDER)] == []


def test_every_family_for_gpus_is_verified_on_one_or_named_with_a_reason():
    """unverified.json names exactly the families whose kernels no GPU has verified as they are."""
    on_gpus = {r.family for r in all_verified(FOLDER) if on_gpu(r) and r.passed and r.is_current}
    waiting = json.loads(UNVERIFIED.read_text(encoding="utf-8"))
    named = [family for families in waiting.values() for family in families]
    assert all(waiting), "each list has its reason"
    assert sorted(named) == sorted(ON_GPUS - on_gpus)


def test_a_changed_kernel_is_named_with_the_command(monkeypatch):
    """The line names family, device, date and command; one current record of a GPU is enough."""
    old = replace(TILED, kernels="0" * 16)
    (line,) = outdated_on_gpus((old,))
    assert "tiled changed since NVIDIA H200 verified them on 2026-11-01" in line
    assert "python -m clgemm verify" in line
    assert outdated_on_gpus((old, TILED)) == []
    for other in (
        replace(old, device=H200._replace(kind="CPU")),
        replace(old, device=H200._replace(name="llvmpipe (LLVM 15)")),
    ):
        assert outdated_on_gpus((other,)) == []
    monkeypatch.setattr(verified, "kernels_hash", lambda _: "f" * 16)
    assert len(outdated_on_gpus((TILED,))) == 1


@pytest.mark.parametrize(
    ("device", "record", "words"),
    [
        (H200, TILED, "verified on this device, 2026-11-01; largest error 0.25 of the bound"),
        (H200._replace(driver="590"), TILED, "verified on this device with another driver, 2026"),
        (H200._replace(name="NVIDIA H100"), TILED, "verified on the same architecture, 2026"),
        (H200._replace(architecture="compute capability 8.0", name="A100"), TILED, "not verified"),
        (H200, replace(TILED, kernels="0"), "not verified: the kernels changed since 2026-11-01"),
        (H200, replace(TILED, family="direct"), "not verified"),
        (H200, replace(TILED, precisions={}), "not verified"),
        (
            H200,
            replace(TILED, precisions={"strict": COUNTS["strict"] | {"failures": 1.0}}),
            "not verified",
        ),
    ],
)
def test_the_standing_of_a_device_is_that_of_the_nearest_record(device, record, words):
    """The same device comes first, then another driver, then the architecture."""
    found = verification(device, "tiled", (record,))
    assert found.startswith(words)
    assert found.startswith("not verified") == words.startswith("not verified")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "device": {}, "date": "", "families": {}}',
        '{"format": 1, "device": [], "date": "", "families": []}',
        "\x00",
    ],
)
def test_what_is_no_record_is_refused_and_left_out(text, tmp_path):
    """A file that was cut or is of another format raises ValueError; others are still read."""
    with pytest.raises(ValueError, match=r"."):
        read(text)
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    whole = FILES[0].read_text(encoding="utf-8")
    (tmp_path / "whole.json").write_text(whole, encoding="utf-8")
    assert list(all_verified(tmp_path)) == read(whole)
