"""The tiled family: its configs, expected times, what the planner and the tuner ask of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.config import variant_of
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Unit
from clgemm.kernels.tiled.family import (
    MOST_SUMS,
    TILED,
    gpu_configs,
    lane_configs,
    nvidia_configs,
    that_fit,
)
from clgemm.kernels.tiled.plan import (
    SMALLEST_SLICE,
    TiledConfig,
    TiledVariant,
    in_place_us,
    launch_us,
    side_by_side,
    tiled_estimate,
)

LARGE = lane_configs()[0]
COPIED = next(config for config in nvidia_configs() if config.asynchronous)
LIMITED = next(config for config in nvidia_configs() if config.registers)


def test_work_items_that_share_sums_count():
    """A work-group has as many work-items for each block of C as there are parts."""
    assert replace(LARGE, parts=2).items == 2 * LARGE.items == 2 * LARGE.items_m * LARGE.items_n


def test_transposed_tiles_have_a_longer_pitch():
    """A column of a tile that is transposed on its way does not fall into one memory bank."""
    plain, one, both = (
        variant_of(TiledVariant, LARGE, transpose_a=a, transpose_b=b)
        for a, b in ((False, False), (True, False), (True, True))
    )
    extra = 4 * LARGE.buffers * LARGE.tile_k
    assert plain.local_memory_bytes == LARGE.local_memory_bytes
    assert one.local_memory_bytes == plain.local_memory_bytes + extra * LARGE.width_a
    assert both.local_memory_bytes == one.local_memory_bytes + extra * LARGE.width_b


def test_fused_split_k_needs_a_newer_opencl_c():
    """Its atomic functions are those of OpenCL C 3.0; all else is compiled as 1.2."""
    assert variant_of(TiledVariant, LARGE, fused_split_k=True).standard == "CL3.0"
    assert variant_of(TiledVariant, LARGE).standard == LARGE.standard == "CL1.2"


def test_sums_that_are_shared_pass_through_the_tiles_memory():
    """The tiles of A can hold whole rows of a block of C, for every config with parts."""
    for config in (c for c in nvidia_configs() if c.parts > 1):
        rows = config.buffers * config.tile_k * config.work_m // config.tile_n
        assert rows >= 1
        assert config.work_m % min(rows, config.work_m) == 0


@pytest.mark.parametrize("buffers", [1, 7])
def test_asynchronous_copies_need_a_buffer_to_fill_and_one_to_read(buffers):
    """With one, a tile would be overwritten while it is multiplied."""
    assert any(f"buffers={buffers}" in each for each in replace(COPIED, buffers=buffers).problems())


def test_only_asynchronous_copies_fill_more_than_two_buffers():
    """Otherwise the next tile waits in registers, and a third buffer would never be filled."""
    assert list(replace(COPIED, asynchronous=False, buffers=3).problems())


def test_a_copy_that_transposes_takes_one_float():
    """The floats of a wider one would have to go to different rows of local memory."""
    variant = variant_of(TiledVariant, COPIED, transpose_a=True, load_a=1, load_b=4)
    assert not list(variant.problems())
    assert any("load_a" in each for each in replace(variant, load_a=4).problems())


@pytest.mark.parametrize("config", [COPIED, LIMITED])
def test_devices_without_nvidias_instructions_refuse_configs_that_need_them(config):
    """So no record, however it came there, takes such code to another compiler."""
    assert any("compute capability 8.0" in each for each in config.problems_on(LIMITS))
    assert not list(config.problems_on(replace(LIMITS, asynchronous_copies=True)))


def test_registers_are_limited_by_a_compiler_option():
    """Configs that leave registers to the compiler have no option."""
    assert LIMITED.build_options == (f"-cl-nv-maxrregcount={LIMITED.registers}",)
    assert replace(LIMITED, registers=0).build_options == ()


def test_what_reads_by_vectors_alone():
    """Configs with many sums do. So do those with many copies of single floats for each tile."""
    large = replace(LARGE, work_m=16, work_n=8)
    copied = replace(COPIED, tile_m=64, tile_n=64, tile_k=16, work_m=8, work_n=8)
    assert large.is_crowded
    assert copied.is_crowded
    assert not LARGE.is_crowded
    assert not replace(large, work_m=8).is_crowded
    assert not replace(copied, tile_k=8).is_crowded
    assert not replace(copied, work_n=4).is_crowded


def best_for(size, limits):
    """The config with the shortest expected time, and its estimate."""
    found = {c: tiled_estimate(c.tiles, *size, 1, limits) for c in nvidia_configs()}
    return min(found.items(), key=lambda each: each[1].time)


@pytest.mark.parametrize("size", [(64, 4096, 4096), (4096, 64, 4096), (64, 64, 100_000)])
def test_nearly_every_compute_unit_of_a_gpu_gets_work(size):
    """With few tiles of C, k is split, into slices of a minimum depth.

    128 work-groups of the fastest tiles leave 4 of 132 compute units idle, and another cut of k
    would cost more than that.
    """
    limits = replace(LIMITS, compute_units=132)
    config, found = best_for(size, limits)
    tiles = -(-size[0] // config.tile_m) * -(-size[1] // config.tile_n)
    assert tiles * found.slices >= 0.95 * 132
    assert found.slices == 1 or size[2] // found.slices >= SMALLEST_SLICE


def test_a_long_sum_of_few_tiles_is_expected_to_gain_by_slices():
    """One slice takes far longer than many, and so does one of the fewest steps per launch."""
    limits = replace(LIMITS, compute_units=132)
    tiles = nvidia_configs()[1].tiles
    times = [launch_us(tiles, 64, 64, 100_000, 1, n, False, limits) for n in (1, 8, 64)]
    assert times[0] > 4 * times[1] > 8 * times[2]


def test_loads_of_single_floats_are_expected_to_take_longer():
    """Unaligned operands take more instructions; transposed ones pass through local memory."""
    limits = replace(LIMITS, compute_units=132)
    wide = nvidia_configs()[0].tiles
    shape = (4096, 4096, 4096, 1, 1, False)
    single = launch_us(wide._replace(load_a=1, load_b=1), *shape, limits)
    across = launch_us(wide._replace(transpose_a=True), *shape, limits)
    assert launch_us(wide, *shape, limits) < min(single, across)


def test_split_k_is_fused_where_that_is_faster():
    """Split-k is fused for few slices, if the device lets work-groups read what others write."""
    limits = replace(LIMITS, compute_units=132)
    fusing = replace(limits, fused_split_k=True)
    assert best_for((640, 640, 640), fusing)[1].fused_split_k
    assert not best_for((64, 64, 100_000), fusing)[1].fused_split_k
    assert not best_for((640, 640, 640), limits)[1].fused_split_k


@pytest.mark.parametrize("config", [c for c in nvidia_configs() if c.parts > c.buffers])
def test_slices_of_k_run_side_by_side(config):
    """No compute unit gets more work-groups at a time than its registers hold."""
    limits = replace(LIMITS, compute_units=132)
    found = tiled_estimate(config.tiles, config.tile_m, 64 * config.tile_n, 4096, 1, limits)
    sums = config.work_m * config.work_n
    assert -(-64 * found.slices // 132) * config.items * sums <= limits.unit.registers
    # Two work-groups a unit leave lanes idle: adding up what the parts share is worth it.
    two = config.tile_m, 2 * 132 * config.tile_n, 4096, 1, limits
    alone = tiled_estimate(replace(config, parts=1).tiles, *two)
    assert tiled_estimate(config.tiles, *two).time < alone.time


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        (Unit(), 4),
        (Unit(registers=32768), 2),
        (Unit(local_bytes=64 << 10), 3),
        (Unit(items=256), 2),
        (Unit(items=64), 1),
    ],
)
def test_work_groups_share_what_a_unit_has(unit, count):
    """Registers, local memory or work-items bound their number; one always runs."""
    config = next(each for each in lane_configs() if each.tile_m == 64)
    assert config.items == 128
    tiles = config.tiles._replace(registers=128, items=128)
    assert side_by_side(tiles, unit) == count


def test_aligned_stores_count_less_and_only_a_short_k_makes_others_dear():
    """Where k is long, the stores of C hardly matter."""
    limits = replace(LIMITS, compute_units=132)
    config = next(each for each in nvidia_configs() if each.buffers == 2)

    def us(columns, depth, c_column=1):
        c_row = 1 if c_column > 1 else columns
        tiles = config.tiles_for(columns, c_row, c_column)
        return launch_us(tiles, 4000, columns, depth, 1, 1, False, limits)

    assert us(4001, 20) > 1.1 * us(4000, 20)
    assert us(4001, 20, 4000) > us(4001, 20)
    assert us(4001, 4000) < 1.03 * us(4000, 4000)


SMALLEST = replace(LIMITS, local_memory_bytes=32 * 1024, work_group_size=256)


def test_two_work_groups_fit_on_the_smallest_devices():
    """All tiles but the largest leave half of 32 KiB of local memory to another work-group."""
    assert all(not list(config.problems_on(SMALLEST)) for config in lane_configs())
    assert all(config.local_memory_bytes <= 2**14 for config in lane_configs()[1:])


@pytest.mark.parametrize("size", [16, 64, 128, 256])
def test_devices_with_small_work_groups_have_tiles_too(size):
    """At least one config fits where a work-group has 16 work-items."""
    traits = traits_with(replace(LIMITS, work_group_size=size))
    assert that_fit(traits)
    assert all(config.items <= size for config in that_fit(traits))


def test_a_cpu_does_not_emulate_the_largest_tiles():
    """Partly used large tiles take very long there."""
    assert gpu_configs()[0] in that_fit(traits_with(LIMITS))
    assert lane_configs()[0] not in that_fit(traits_with(LIMITS, "CPU"))


@pytest.mark.parametrize("is_nvidia", [False, True])
@pytest.mark.parametrize("registers", [64, 128, 256])
def test_default_tiles_leave_half_of_the_registers(registers, is_nvidia):
    """The sums of a work-item take at most half of its registers, on every maker's GPUs."""
    limits = replace(LIMITS, registers=registers, work_group_size=256)
    sums = {c.work_m * c.work_n for c in that_fit(traits_with(limits, is_nvidia=is_nvidia))}
    assert registers // 4 <= max(sums) <= registers // 2


def test_a_cpu_has_the_same_tiles_whatever_its_registers():
    """The number of registers describes GPUs alone."""
    few = traits_with(replace(LIMITS, registers=64), "CPU")
    assert set(lane_configs()[1:]) == set(that_fit(few))


def test_work_items_of_nvidias_gpus_keep_their_registers():
    """At most 128 sums leave registers for the operands, of 255 in all."""
    assert all(config.work_m * config.work_n <= 128 for config in nvidia_configs())
    assert len(set(nvidia_configs())) == len(nvidia_configs())


def test_older_gpus_of_nvidia_get_tiles_without_asynchronous_copies():
    """Their registers are not limited, and their tiles not deep; nothing else differs."""
    old = that_fit(traits_with(LIMITS, is_nvidia=True))
    new = that_fit(traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True))
    assert old
    assert not any(config.asynchronous or config.registers for config in old)
    plain = (config for config in new if not config.asynchronous and config.tile_k < 32)
    assert {replace(config, registers=0) for config in plain} == set(old)
    assert any(config.asynchronous for config in new)


GPU = traits_with(LIMITS)
NVIDIA = traits_with(LIMITS, is_nvidia=True)
NEWER = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)


@pytest.mark.parametrize("shape", [Shape(4096, 4096, 4096), Shape(33, 65, 900), Shape(64, 64, 9)])
@pytest.mark.parametrize("traits", [GPU, NVIDIA])
def test_the_default_with_the_shortest_expected_time_is_first(shape, traits):
    """All configs that fit follow, each once."""
    choices = TILED.defaults(shape, traits)
    times = [TILED.estimate(shape, choice.config, traits) for choice in choices]
    assert times[0] == min(times)
    assert sorted(map(str, (choice.config for choice in choices))) == sorted(
        map(str, that_fit(traits))
    )


def test_a_device_that_no_config_fits_is_named():
    """The error says which family and which device."""
    tiny = traits_with(replace(LIMITS, local_memory_bytes=100))
    with pytest.raises(RuntimeError, match="no config of the tiled family fits Traits"):
        TILED.defaults(Shape(9, 9, 9), tiny)


def test_the_model_is_for_gpus():
    """It is trusted more for large products, and not at all on a CPU that plays a GPU."""
    large, small = Shape(1024, 1024, 1024), Shape(1024, 1024, 1023)
    assert 1 < TILED.slack(large, GPU) < TILED.slack(small, GPU) < 2
    assert TILED.slack(large, traits_with(LIMITS, "CPU")) == float("inf")
    assert not TILED.runs_on(traits_with(TWO_CORES, "CPU"))


def test_a_fallback_has_the_config_that_is_fastest_in_place():
    """It packs nothing of a small product that can be read in place."""
    shape = Shape(401, 403, 405)
    problem = Problem.of(shape, "float32")
    far = TILED.defaults(shape, NVIDIA)[-1]
    (launch,) = TILED.fallback(problem, far, NVIDIA)(problem).steps
    found = {
        choice: in_place_us(*problem.layouts, choice.config, NVIDIA.limits)
        for choice in TILED.candidates(problem, NVIDIA)
    }
    best = min(found, key=found.get).config
    assert plain(launch.config) == best


def test_a_fallback_has_the_choice_of_a_record_if_that_is_faster():
    """It need not be one of the defaults."""
    shape = Shape(401, 403, 405)
    problem = Problem.of(shape, "float32")
    found = TILED.defaults(shape, NVIDIA)[0]
    found = found._replace(config=replace(found.config, percent=50, swizzle=3))
    (launch,) = TILED.fallback(problem, found, NVIDIA)(problem).steps
    assert plain(launch.config) == found.config


def test_a_fallback_packs_where_that_saves_far_more_than_its_launches_cost():
    """Operands of odd strides, if they are large; small or aligned ones are read in place."""

    def families(m, n, k):
        shape = Shape(m, n, k)
        problem = Problem.of(shape, "float32")
        aligned = (x._replace(alignment_bytes=256) for x in problem.layouts)
        problem = Problem(*aligned, problem.precision)
        plan = TILED.fallback(problem, TILED.defaults(shape, NEWER)[0], NEWER)(problem)
        return [step.config.family for step in plan.steps]

    assert families(3001, 3003, 5005) == ["pack", "pack", "tiled"]
    assert families(701, 703, 705) == ["tiled"]
    assert families(3072, 3072, 5120) == ["tiled"]


def test_a_fallback_takes_no_config_that_would_pack_what_others_read_in_place():
    """One whose work-items are full of sums does, and is otherwise the fastest here."""
    shape = Shape(1001, 1001, 301)
    problem = Problem.of(shape, "float32")
    crowded = next(each for each in TILED.defaults(shape, NEWER) if each.config.is_crowded)
    (launch,) = TILED.fallback(problem, crowded, NEWER)(problem).steps
    assert not launch.config.is_crowded


def plain(variant):
    """Return the config that a launch's config was made from."""
    return TiledConfig(**{f.name: getattr(variant, f.name) for f in fields(TiledConfig)})


def test_tiles_that_are_not_square_cover_c_either_way():
    """A turned product has fewer tiles, unless stores against the rows cost more."""

    def tiles(m, n):
        choices = TILED.defaults(Shape(9, 9, 9), NEWER)
        return next(c for c in choices if (c.config.tile_m, c.config.tile_n) == (m, n))

    def turns(shape, choice):
        return TILED.is_faster_transposed(Problem.of(shape, "strict"), choice, NEWER)

    assert turns(Shape(32, 9000, 999), tiles(128, 16))
    assert not turns(Shape(9000, 32, 999), tiles(128, 16))
    assert not turns(Shape(128, 9000, 1), tiles(128, 16))
    assert not turns(Shape(32, 9000, 999), tiles(64, 64))


SPACE = TILED.search_space(TILED.plainest(GPU), GPU)
POINT = {name: values[0] for name, values in SPACE.values.items()}


@pytest.mark.parametrize(("work_m", "work_n", "made"), [(12, 12, True), (16, 12, False)])
def test_kernels_that_would_spill_are_not_made(work_m, work_n, made):
    """A work-item has at most 144 sums."""
    point = POINT | {"work_m": work_m, "work_n": work_n, "items_m": 8, "items_n": 8, "tile_k": 16}
    assert (work_m * work_n <= MOST_SUMS) == made
    assert (SPACE.make(point) is not None) == made


def test_tiles_follow_from_work_items_and_their_work():
    """A point's tiles have so many work-items of so many rows and columns, and its packing fits."""
    point = POINT | {"items_m": 8, "items_n": 16, "work_m": 4, "work_n": 8, "tile_k": 16}
    choice = SPACE.make(point)
    assert (choice.config.tile_m, choice.config.tile_n) == (32, 128)
    assert not list(TILED.problems(choice))


def test_coarse_tiles_are_nearly_square():
    """No side of a tile in the coarse grid is more than twice the other."""
    for items_m, items_n, work_m, work_n in SPACE.coarse["items_m", "items_n", "work_m", "work_n"]:
        assert 1 / 2 <= items_m * work_m / (items_n * work_n) <= 2


def test_asynchronous_copies_are_searched_where_devices_have_them():
    """On other devices every point stays without them."""
    assert SPACE.values["asynchronous"] == SPACE.values["registers"] == (0,)
    traits = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)
    space = TILED.search_space(TILED.plainest(traits), traits)
    point = {name: values[0] for name, values in space.values.items()}
    point |= {"items_m": 8, "items_n": 8, "work_m": 4, "work_n": 4, "tile_k": 16}
    made = space.make(point | {"asynchronous": 1, "buffers": 3, "registers": 128}).config
    assert (made.asynchronous, made.buffers, made.registers) == (True, 3, 128)
    assert not list(made.problems_on(traits.limits))
    assert {"asynchronous", "registers"} <= set(space.read(space.make(point)))


def test_the_defaults_of_nvidias_gpus_are_points():
    """Each is made again from its values, with the percent that was measured."""
    traits = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)
    for choice in TILED.defaults(Shape(512, 512, 512), traits):
        space = TILED.search_space(choice, traits)
        assert space.make(space.read(choice)) == choice
