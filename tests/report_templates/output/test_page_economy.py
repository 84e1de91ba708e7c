"""The number of pages of a PDF, and how empty they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from page_emptiness import emptiness
from postrun.api import OutputOptions, make_report
from postrun.report_templates.blocks import Figure, say
from postrun.report_templates.blocks.tables import Col, Table, table
from postrun.report_templates.figures import svg
from postrun.report_templates.output.grid import rows as grid_rows
from postrun.report_templates.output.pdf_tables import pdf_layout
from postrun.simulate import write_demo

RECORDING = Path(__file__).parents[2] / "data" / "small_training" / "run"
MEAN_EMPTY = 0.4


def figure(width: float) -> Figure:
    return Figure(f"f-{width:g}", svg.document(width, 50, []), "7 of 9 dots", say("Dots."))


def numbers(id: str, columns: int) -> Table:
    drawn = table(id, "Numbers", [1.0, 2.0], *(Col(f"Column {i}", lambda row: row, str) for i in range(columns)))
    assert drawn is not None
    return drawn


def ids(blocks: list[Figure | Table | None], room: int = 12) -> list[list[tuple[str, int]]]:
    return [[(block.id, columns) for block, columns in row if block] for row in grid_rows(blocks, room)]


def test_a_table_is_next_to_its_narrow_figure() -> None:
    assert ids([figure(svg.NARROW), numbers("t", 3)]) == [[("f-416", 7), ("t", 5)]]
    assert ids([figure(svg.WIDE), numbers("t", 3)]) == [[("f-720", 12)], [("t", 12)]]
    assert ids([figure(svg.THIRD)] * 4) == [[("f-229", 4)] * 3, [("f-229", 4)]]


def test_two_tables_share_a_row_if_shorter_names_suffice() -> None:
    # A row has 105 characters. The names want 40 and need 22: 2 x (22 + 3 x 9) fit, 2 x (40 + 3 x 9) do not.
    names = [f"vectorized_elementwise_kernel_number_{number:03}" for number in range(3)]
    columns = [Col(f"Num {i}", lambda _: "123 ms", kind="number") for i in range(3)]
    named = [table(id, "Kernels", names, Col("Kernel", lambda name: name, kind="name"), *columns) for id in ("a", "b")]
    ((first, second),) = ids(named)
    assert (first[0], second[0], first[1] + second[1]) == ("a", "b", 12)
    assert len({row[0] for row in pdf_layout(named[0], first[1])[2]}) == 3  # type: ignore[arg-type]


def test_a_table_whose_texts_would_wrap_does_not_shrink() -> None:
    sentences = table(
        "t",
        "Evidence",
        ["The host had not launched the kernel, because it waited for the data loader."] * 2,
        Col("Sentence", lambda text: text),
    )
    wide = numbers("n", 6)
    assert ids([wide, sentences]) == [[("n", 12)], [("t", 12)]]


def test_a_table_of_many_columns_is_below_the_figure() -> None:
    assert ids([figure(svg.NARROW), numbers("t", 9)]) == [[("f-416", 7)], [("t", 12)]]


def test_a_table_next_to_a_figure_leaves_out_columns_before_it_shortens_names() -> None:
    names = [f"rank {number} · algo-{number} GPU {number}" for number in range(3)]
    numbers_of = [Col(f"Number {i}", lambda _: "1,234.5", kind="number") for i in range(3)]
    wide = table("t", "Ranks", names, Col("Rank", lambda name: name, kind="name"), *numbers_of)
    assert wide is not None
    assert pdf_layout(wide, 5)[2][0][0] != names[0]
    ((_, (beside, columns)),) = grid_rows([figure(svg.NARROW), wide])
    assert isinstance(beside, Table)
    assert [row[0] for row in pdf_layout(beside, columns)[2]] == names


def test_a_row_never_has_more_than_its_room() -> None:
    blocks = [numbers(f"t{i}", 1 + i % 4) for i in range(9)]
    for room in (6, 12):
        for row in ids(blocks, room):
            assert sum(columns for _, columns in row) == room
    assert [id for row in ids(blocks) for id, _ in row] == [block.id for block in blocks]


def filled(folder: Path, source: Path, most_pages: int, most_empty: float = 0.5) -> None:
    """``most_empty``: share of a page but the last."""
    if shutil.which("pdftoppm") is None:
        pytest.skip("pdftoppm is not installed (apt-get install poppler-utils)")
    pages = emptiness(make_report(source, OutputOptions(folder, formats=("pdf",))).written["pdf"])
    assert len(pages) <= most_pages
    assert max(pages[:-1]) <= most_empty, pages
    assert sum(pages[:-1]) / len(pages[:-1]) <= MEAN_EMPTY, pages


@pytest.mark.slow
def test_the_pages_of_a_job_of_eight_ranks_are_few_and_filled(tmp_path: Path) -> None:
    write_demo(tmp_path / "run", seed=1)  # that of `postrun demo`
    filled(tmp_path / "report", tmp_path / "run", 16, 1 / 3)


@pytest.mark.slow
def test_the_pages_of_a_recording_without_a_gpu_are_few_and_filled(tmp_path: Path) -> None:
    filled(tmp_path, RECORDING, 5)


@pytest.mark.parametrize("trace", ["diff_pair/a100_rank3_of_8.json.gz", "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"])
def test_the_pages_of_a_trace_of_one_gpu_are_few_and_filled(shared_data: Path, tmp_path: Path, trace: str) -> None:
    filled(tmp_path, shared_data / "kineto" / trace, 10)


def test_names_that_differ_in_their_middle_stay_distinct() -> None:
    names = [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{kind}_n_tilesize128x128x64" for kind in ("tn", "nt")]
    drawn = table(
        "t",
        "Kernels",
        names,
        Col("Kernel", lambda name: name, kind="name", code=True),
        *[Col(f"N {i}", lambda _: "1,234.56 ms", kind="number") for i in range(7)],
    )
    assert drawn is not None
    assert [row[0] for row in pdf_layout(drawn)[2]] == ["sm90…_tn_n_tiles…", "sm90…_nt_n_tiles…"]
