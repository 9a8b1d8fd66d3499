import pytest

from cake_kernels.grouped_gemm.sm90.walk import Area, Tile, walk


def places(made):
    return [(tile.group, tile.row, tile.column) for tile in map(made.tile, range(made.num_tiles))]


@pytest.fixture
def forward():
    """Groups of 300, 0 and 130 rows, 70 rows of nobody, in tiles of 128 x 256."""
    return walk("fwd", [300, 300, 430], M=500, N=520, K=65, cluster_rows=128, cluster_columns=256, band=2)


def test_forward_goes_band_by_band_and_turns_in_odd_bands(forward):
    assert places(forward) == [
        *((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2)),
        *((0, 2, 2), (0, 2, 1), (0, 2, 0)),
        *((2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1), (2, 0, 2), (2, 1, 2)),
        *((3, 0, 0), (3, 0, 1), (3, 0, 2)),
    ]


def test_a_tile_is_clipped_to_its_group_and_to_the_columns(forward):
    assert forward.area(forward.tile(6)) == Area(rows=range(256, 300), columns=range(512, 520))


def test_a_group_starts_a_tile_of_its_own(forward):
    assert forward.area(forward.tile(9)) == Area(rows=range(300, 428), columns=range(256))


def test_rows_of_nobody_have_no_k_blocks(forward):
    assert [group.k_blocks for group in forward.groups] == [2, 2, 2, 0]
    assert forward.area(forward.tile(15)).rows == range(430, 500)


def test_dgrad_has_k_columns_and_reduces_over_n():
    made = walk("dgrad", [10], M=10, N=129, K=300, cluster_rows=128, cluster_columns=256, band=1)

    assert [made.tile(0), made.tile(1)] == [
        Tile(group=0, row=0, column=0, k_blocks=3),
        Tile(group=0, row=0, column=1, k_blocks=3),
    ]


def test_wgrad_tiles_every_expert_and_reduces_over_its_rows():
    made = walk("wgrad", [65, 65, 70], M=100, N=130, K=10, cluster_rows=128, cluster_columns=256, band=8)

    assert places(made) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0)]
    assert [(group.expert, group.k_blocks) for group in made.groups] == [(0, 2), (2, 1), (1, 0)]


def test_experts_without_rows_come_last_in_wgrad_from_the_last_one_to_the_first():
    made = walk("wgrad", [0, 10, 10, 10, 20], M=30, N=8, K=8, cluster_rows=64, cluster_columns=64, band=1)

    assert [group.expert for group in made.groups] == [1, 4, 3, 2, 0]
    assert [group.first_tile for group in made.groups] == [0, 1, 2, 3, 4]


def test_groups_of_forward_keep_their_order(forward):
    assert [group.expert for group in forward.groups] == [0, 1, 2, 3]


def test_ends_that_fall_or_leave_the_rows_are_clamped():
    made = walk("fwd", [-4, 5, 2, 99], M=8, N=1, K=1, cluster_rows=64, cluster_columns=64, band=1)

    rows = [group.area.rows for group in made.groups]
    assert rows == [range(0, 0), range(0, 5), range(5, 5), range(5, 8), range(8, 8)]


def test_without_rows_there_is_nothing_to_do():
    made = walk("fwd", [0, 0], M=0, N=64, K=64, cluster_rows=64, cluster_columns=64, band=1)

    assert made.num_tiles == 0
    assert list(made.tiles_of(0, 66)) == []


def test_a_cluster_takes_every_nth_tile(forward):
    assert list(forward.tiles_of(3, 7)) == [3, 10, 17]
    assert list(forward.tiles_of(18, 66)) == []
