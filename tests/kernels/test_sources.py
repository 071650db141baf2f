"""Source texts, their tokens, and the hash that records and verdicts are kept by."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.config import KernelConfig
from clgemm.core.problem import Layout, Problem
from clgemm.core.traits import Limits, Traits
from clgemm.kernels import FAMILIES, NAMED, family_named, sources
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.finite.plan import FiniteConfig
from clgemm.kernels.mirror.plan import MirrorConfig, MirrorTileConfig, TrianglesConfig
from clgemm.kernels.sources import files_of, sources_hash, text_of, tokens, used_by
from clgemm.kernels.tensor_core.plan import MmaConfig, WgmmaConfig
from clgemm.kernels.tiled.plan import TiledConfig
from clgemm.records.tuned import kernels_hash, shipped

TOKENS = (
    *("x", "float4", "_if2", "1", "0x1f", "1.5e-3f", ".5", "0x1p-3f", '"a // b"', '"\\" /* "'),
    *("'\\''", "+", "++", "-", "->", "<<=", "<", "...", "##", "(", ")", "{", ";", ",", "?", "@"),
)
GAPS = " ", "\t", "\n", "\\\n", "  \r\n ", "// it's \"so\n", "/* a\n#define b */", "/**/"


def listed(source):
    """The tokens of a source."""
    return list(tokens(source))


@given(
    st.lists(
        st.tuples(st.sampled_from(TOKENS), st.lists(st.sampled_from(GAPS), min_size=1, max_size=3))
    )
)
def test_tokens_are_found_whatever_lies_between(pairs):
    """Comments, whitespace and line continuations separate tokens and are none themselves."""
    # A line continuation alone joins two tokens.
    source = "".join(token + " " + "".join(gap) for token, gap in pairs)
    assert listed(source) == [token for token, _ in pairs]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a + +b", "a++b"),
        ("a - -b", "a--b"),
        ("a / *b", "a /*b*/"),
        ("int x", "intx"),
        ("1 .5", "1.5"),
        ("#define A 1\nB", "#define A 1 B"),
        ("#define A\n#define B", "#define A #define B"),
        ("x\n#define A", "x #define A"),
        ("#define F(x) x", "#define F (x) x"),
        ("#define F(x) x", "#define F/**/(x) x"),
        ('asm("a  b")', 'asm("a b")'),
        ('"a//b"', '"a'),
        ("x = 1;", "x = 2;"),
    ],
)
def test_what_a_compiler_tells_apart_has_other_tokens(one, other):
    """Spaces between operators, ends of directives, and all of a string count."""
    assert listed(one) != listed(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a+b", "a + b // sum"),
        ("a /* x */ + b", "a\n+\nb"),
        ("#define A 1\nB", "  #  define A  /* one */ 1 // x\n\n\nB\n"),
        ("#define A 1 + 2\nB", "#define A 1 + \\\n  2\nB"),
        ("#define A /* a\nb */ 1\nB", "#define A 1\nB"),
        ("// a \\\n still a comment\nB", "B"),
        ("a\r\n#if A\r\n", "a\n#if A\n"),
        ("#define A F (x)", "#define A F(x)"),
        ("#endif", "#endif\n"),
        ("flo\\\nat", "float"),
    ],
)
def test_what_a_compiler_takes_for_the_same_has_the_same_tokens(one, other):
    """Comments and layout do not count, even where they go on to the next line."""
    assert listed(one) == listed(other)


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_every_token_of_a_family_counts_and_no_comment_does(family, monkeypatch):
    """Whichever of its kernels changes."""
    computed = kernels_hash.__wrapped__  # not cached
    before = computed(family)
    for kind in used_by(family_named(family).config):
        for text, same in (
            (f"// A title.\n{text_of(kind)}", True),
            (f"{text_of(kind)}\n\n/* The end. */", True),
            (f"{text_of(kind)};", False),
            (text_of(kind).replace("const", "", 1), False),
        ):
            with monkeypatch.context() as patch:
                changed = {kind: text}
                patch.setattr(sources, "text_of", lambda x, c=changed: c.get(x) or text_of(x))
                assert (computed(family) == before) == same, kind


def test_the_words_of_an_error_do_not_count():
    """The message of an #error may be written anew; that there is one counts."""
    assert [*tokens("#error one\nx")] == [*tokens("#error another, longer\nx")]
    assert [*tokens("#error one\nx")] != [*tokens("x")]


def test_compiler_options_count(monkeypatch):
    """A kernel's own, and those of every build."""
    before = sources_hash(DirectConfig)
    for owner, name in ((DirectConfig, "options"), (sources, "OPTIONS")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, ("-cl-fast-relaxed-math",))
            sources._digest.cache_clear()
            assert sources_hash(DirectConfig) != before
        sources._digest.cache_clear()


def hashed():
    """The configs of every kernel that a record or the verdict of tensor cores depends on."""
    return used_by(*(family.config for family in NAMED.values()))


OTHERS = "ladder/", "finite/", "mirror/"


def test_every_kernel_file_counts_in_some_hash():
    """A record or the verdict of tensor cores depends on each source that a product can use.

    What only looks at a result, or copies within it, is no part of a product's time.
    """
    counted = {name for kind in hashed() for name in files_of(kind)}
    folder = Path(sources.__file__).parent
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*.cl")}
    assert {file for file in files if not file.startswith(OTHERS)} == counted


def kinds_under(base):
    """Every config class of the package that has a kernel: pages of docs/ have others."""
    for kind in base.__subclasses__():
        if hasattr(kind, "family") and kind.__module__.startswith("clgemm."):
            yield kind
        yield from kinds_under(kind)


def test_every_config_counts_in_some_hash():
    """A new kernel is a family of its own, a companion, or tried with the tensor cores.

    Or it only looks at a result, or copies within it.
    """
    every = {(kind.family, files_of(kind)) for kind in kinds_under(KernelConfig)}
    for kind in (FiniteConfig, MirrorConfig, MirrorTileConfig, TrianglesConfig):
        every.remove((kind.family, files_of(kind)))
    assert every == {(kind.family, files_of(kind)) for kind in hashed()}


GPU, CPU = Limits(48 << 10, 1024, 2**32, 132, 1), Limits(2**20, 4096, 2**32, 4, 16)
SHAPES = (3000, 2000, 1000), (64, 64, 50_000), (2, 2000, 5000), (2000, 2, 5000), (5, 5, 5)


def planned(m, n, k, limits):
    """Every family of a device, with all that its plans of a product launch."""
    kind = "GPU" if limits is GPU else "CPU"
    traits = Traits(limits, kind, is_nvidia=limits is GPU, capability=(9, 0), register_width=16)
    for strides in ((k, 1), (1, m), (2 * k, 2)):
        a = Layout((m, k), strides, 64)
        b, c = Layout((k, n), (n, 1), 64), Layout((m, n), (n, 1), 64)
        problem = Problem(a, b, c, "float32")
        (plain,) = (f for f in FAMILIES if f.name in ("tiled", "blocked") and f.runs_on(traits))
        fallback = plain.fallback(problem, plain.defaults(problem.shape, traits)[0], traits)
        for family in FAMILIES:
            if family.runs_on(traits) and family.fits(problem):
                choice = family.defaults(problem.shape, traits)[0]
                for plan in (family.plan, family.trial_plan):
                    yield family, plan(problem, choice, traits, fallback)


@pytest.mark.parametrize("limits", [GPU, CPU], ids=["GPU", "CPU"])
def test_whatever_a_plan_launches_counts_in_its_familys_hash(limits):
    """Packing, adding up what k was cut into, and the fallback of tensor cores too."""
    launched = set()
    for shape in SHAPES:
        for family, plan in planned(*shape, limits):
            names = {step.config.family for step in plan.steps}
            launched |= names
            assert names <= {kind.family for kind in used_by(family.config)}
    packing = {"tensor_pack"} if limits is GPU else {"pack_vectors"}
    assert launched >= packing | {"pack", "reduce"}


def test_the_fallback_of_tensor_cores_counts_for_them():
    """Their verdict covers products that split operands cannot hold: wgmma's kernels do so."""
    assert TiledConfig in used_by(MmaConfig)
    assert "tensor_core/plain.cl" in files_of(WgmmaConfig)


@pytest.mark.parametrize(
    "record", shipped().records, ids=lambda r: f"{r.device.name}, {r.family} {r.shape_class}"
)
def test_no_shipped_record_is_out_of_date(record):
    """Whoever changes a kernel's tokens tunes its records again, or shows that they still hold."""
    assert record.kernels == kernels_hash(record.family)
