"""The arguments of each kernel that a plan can hold, against the declaration in its source.

The declaration is read as its compiler reads it: comments, conditions and macros are resolved.
"""

from __future__ import annotations

import re
from dataclasses import replace

from planned import fallback_by, make_plan, make_scaling_plan, traits_with
from strategies import GPU_LIMITS, rows

from clgemm.core.plan import Element, OutlierCounter
from clgemm.core.problem import Layout
from clgemm.kernels import FAMILIES
from clgemm.kernels.blocked.family import register_config
from clgemm.kernels.cached.family import cached_configs
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.outer_product.family import outer_config
from clgemm.kernels.pack.plan import VectorPackConfig, copy_config, copy_plan, pack_config
from clgemm.kernels.skinny_cpu.family import skinny_config
from clgemm.kernels.skinny_gpu.family import skinny_lanes_config
from clgemm.kernels.sources import BUFFER, parameter_types, text_of, used_by
from clgemm.kernels.tensor_core.narrow import NarrowConfig
from clgemm.kernels.tensor_core.plan import MmaVariant, WgmmaVariant, make_tensor_plan
from clgemm.kernels.tiled.family import lane_configs

UNFUSED, FUSED = GPU_LIMITS, replace(GPU_LIMITS, fused_split_k=True)  # split-k
TWO_CORES = replace(GPU_LIMITS, compute_units=2, vector_width=16)
LOCAL = lane_configs()[1]
PACK = pack_config(FUSED, LOCAL.tile_m), pack_config(FUSED, LOCAL.tile_n)
FALLBACK = fallback_by(LOCAL, PACK, UNFUSED)
REGISTER = register_config(16, True, False)
VECTOR_PACK = (VectorPackConfig.of(REGISTER.tile_m, True),)
DIRECT = DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)
WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
MMA = MmaVariant(swizzle=2, guard=True)
FEW = NarrowConfig(columns=64, ahead=2)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SLOTS = {"a", "b", "c", "packed_a", "packed_b", "partial", "counters"}


def product(m, n, k, *batch):
    return rows(*batch, m, k), rows(*batch, k, n), rows(*batch, m, n)


def apart(x):
    """The same matrix in memory where no two of its elements are neighbours."""
    return x._replace(strides=tuple(2 * stride for stride in x.strides))


def plans():
    """Plans that launch each kernel with each set of its optional arguments."""
    a, b, c = product(100, 130, 70, 3)
    yield make_scaling_plan(c, DIRECT)
    yield copy_plan(a, UNFUSED)
    yield make_plan(a, b, c, DIRECT, None, UNFUSED)
    for m, n, k in ((256, 256, 1000), (1000, 1000, 1000)):
        a, b, c = product(m, n, k)
        for limits in (UNFUSED, FUSED):
            yield make_plan(apart(a), b, c, LOCAL, PACK, limits)
            fallback = fallback_by(LOCAL, PACK, limits)
            yield make_tensor_plan(apart(a), b, c, WIDE, fallback, limits)
            for operand in (a, apart(a)):
                yield make_tensor_plan(operand, b, c, MMA, fallback, limits)
    yield make_tensor_plan(*product(300, 200, 65), WIDE, FALLBACK, UNFUSED)
    yield make_tensor_plan(*product(300, 200, 65), replace(WIDE, guard=False), FALLBACK, UNFUSED)
    for limits in (UNFUSED, FUSED):
        yield make_plan(*product(2, 256, 4096), skinny_lanes_config(2, limits), None, limits)
        yield make_plan(*product(64, 4096, 4096), FEW, None, limits)
    yield make_plan(*product(40_000, 20, 600), FEW, None, FUSED)
    for limits in (UNFUSED, FUSED):
        skinny = fallback_by(skinny_lanes_config(2, limits), None, limits)
        yield make_tensor_plan(*product(2, 256, 4096), MMA, skinny, limits)
    small = fallback_by(DIRECT, None, UNFUSED)
    yield make_tensor_plan(*product(20, 30, 300), MMA, small, UNFUSED)
    cached = cached_configs()[1]
    packs = tuple(pack_config(UNFUSED, tile) for tile in (cached.tile_m, cached.tile_n))
    yield make_plan(*product(100, 130, 700), cached, packs, UNFUSED)
    outer = fallback_by(outer_config(UNFUSED), None, UNFUSED)
    yield make_plan(*product(100, 130, 3), outer_config(UNFUSED), None, UNFUSED)
    yield make_tensor_plan(*product(20, 30, 6), MMA, outer, UNFUSED)
    few = apart(rows(2, 5000))
    along_k = few, Layout((5000, 300), (1, 5000)), rows(2, 300)
    skinny = skinny_config(2, 16, True)
    yield make_plan(*along_k, skinny, (copy_config(TWO_CORES),), TWO_CORES)
    for config in (REGISTER, replace(REGISTER, in_place=not REGISTER.in_place)):
        for m, n, k in ((64, 64, 20_000), (500, 500, 500), (4000, 4000, 4000)):
            a, b, c = product(m, n, k)
            for operand in (a, a.transposed()._replace(shape=a.shape, strides=(1, m))):
                yield make_plan(operand, b, c, config, VECTOR_PACK, TWO_CORES)


def variants():
    """Steps of `plans`, one for each kernel and set of optional arguments, by a name for it."""
    found = {}
    for plan in plans():
        for step in plan.steps:
            name = "conditional " * step.conditional + step.config.family
            for option in ("fused_split_k", "packs"):
                name += f" {option}" * getattr(step.config, option, False)
            found[name] = step
    return found


def preprocessed(source, macros):
    """The lines that a compiler is left with, and the macros at their end."""
    macros = {name: str(value) for name, value in macros}
    lines, active = [], [(True, True)]  # of each condition: whether it holds, whether one has held
    for line in COMMENT.sub(" ", source).replace("\\\n", " ").split("\n"):
        if not (directive := re.match(r"\s*#\s*(\w+)\s*(.*)", line)):
            if all(holds for holds, _ in active):
                lines.append(line)
            continue
        word, rest = directive.groups()
        reached = all(holds for holds, _ in active)
        if word in ("if", "ifdef", "ifndef"):
            negated, rest = word == "ifndef", rest if word == "if" else f"defined({rest})"
            holds = reached and holding(rest, macros) != negated
            active.append((holds, holds or not reached))
        elif word in ("elif", "else"):
            _, held = active.pop()
            holds = not held and (word == "else" or holding(rest, macros))
            active.append((holds, held or holds))
        elif word == "endif":
            active.pop()
        elif reached and word == "define":
            name, body = re.fullmatch(r"(\w+)(.*)", rest).groups()
            macros[name] = body
        elif reached:
            assert word in ("pragma", "undef"), line  # or #error
            macros.pop(rest, None)
    return "\n".join(lines), macros


def expanded(text, macros):
    """A text with its macros replaced; those with parameters are none that a condition reads."""
    while (new := re.sub(r"[A-Za-z_]\w*", lambda x: macros.get(x[0], x[0]), text)) != text:
        text = new
    return text


def holding(condition, macros):
    """Whether the condition of an #if holds: what is no macro is 0."""
    text = re.sub(r"defined *\(? *(\w+) *\)?", lambda x: str(int(x[1] in macros)), condition)
    text = re.sub(r"[A-Za-z_]\w*", "0", expanded(text, macros))
    while (new := re.sub(r"\(([^()]*)\)", lambda x: str(value_of(x[1])), text)) != text:
        text = new
    return bool(value_of(text))


def value_of(text):
    """The value of an expression without parentheses."""
    if "?" in text:
        condition, _, rest = text.partition("?")
        yes, _, no = rest.partition(":")
        return value_of(yes if value_of(condition) else no)
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    return int(eval(re.sub(r"!(?!=)", " not ", text).strip()))


def declared(step):
    """The parameters of a step's kernel, as (name, type), in the order of its declaration."""
    macros = (*step.config.macros(), *[("GATED", 1)] * step.conditional)
    source, defined = preprocessed(text_of(type(step.config)), macros)
    (parameters,) = re.findall(rf"\b__kernel\b[^;{{]*\bvoid {step.config.entry}\(([^)]*)\)", source)
    result = []
    for parameter in expanded(parameters, defined).split(","):
        *words, name = re.findall(r"\w+|\*", parameter)
        types = [word for word in words if word not in ("const", "restrict", "volatile")]
        if "*" in types:
            assert types[0] == "__global"
            types = [BUFFER]
        result.append((name, *types))
    return result


def fits(value, kind):
    """Whether a value can be an argument of that type."""
    if kind == BUFFER:
        return isinstance(value, OutlierCounter) or value in SLOTS
    if kind == "float":
        return isinstance(value, float) or value in ("alpha", "beta")
    if kind in ("int4", "long4"):
        return isinstance(value, bytes) and len(value) == {"int4": 16, "long4": 32}[kind]
    bits = {"int": 32, "long": 64}[kind]
    if isinstance(value, Element):
        return kind == "long"
    return isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def test_the_plans_here_launch_every_kernel():
    """Each kernel of each family, with its optional arguments and without."""
    every = {kind.family for kind in used_by(*(family.config for family in FAMILIES))}
    with_options = ("tiled", "skinny_gpu", "tensor_narrow")
    every |= {f"{name} fused_split_k" for name in with_options} | {"blocked packs"}
    fallbacks = ("pack", "tiled", "tiled fused_split_k", "reduce", "direct", "skinny_gpu")
    others = ("skinny_gpu fused_split_k", "outer_product")
    every |= {f"conditional {name}" for name in (*fallbacks, *others)}
    assert set(variants()) == every


def test_arguments_are_the_kernels_parameters():
    """Names, order and types: those that its compiler sees."""
    for name, step in variants().items():
        parameters = declared(step)
        types = parameter_types(type(step.config))
        assert [(x, types[x]) for x in step.arguments] == parameters, name


def test_values_fit_the_kernels_parameters():
    """Buffers for pointers, numbers in the range of their type, vectors of so many bytes."""
    for plan in plans():
        for step in plan.steps:
            types = parameter_types(type(step.config))
            for name, value in step.arguments.items():
                assert fits(value, types[name]), (step.config.family, name, value)


def test_every_family_in_opencl_c_that_a_gpu_can_run_can_be_a_fallback():
    """All of its kernels take a gate, since the planner may choose any of them."""
    traits = traits_with(FUSED, is_nvidia=True, capability=(9, 0))
    found = [family for family in FAMILIES if family.runs_on(traits) and not family.instructions]
    assert {family.name for family in found} >= {"direct", "outer_product", "skinny_gpu", "tiled"}
    for family in found:
        for kind in used_by(family.config):
            assert list(parameter_types(kind))[-2:] == ["gate", "gate_most"], kind.family
