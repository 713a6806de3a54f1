"""Tables of numbers that follow from sizes: computed for other sizes, read back from lists, refused
where they are damaged."""

import json
import random

import pytest

from weft.base.errors import FormatError
from weft.base.sizes import LARGEST, MAX_ROWS, NUMBER, SIZE, Guard, Row, SizeTable, read_table
from weft.te.extents import Trace


def traced():
    trace = Trace()
    m, n = trace.extent("m", 12), trace.extent("n", 5)
    assert m > n
    assert min(m, 100) is m
    return trace, (m * n - 3) // 2 % (n + 7)


def test_a_table_survives_json():
    trace, made = traced()
    table = trace.table()
    rows, guards = json.loads(json.dumps([table.rows, table.guards]))
    again = read_table(rows, guards, 2)
    assert again == table
    for m, n in [(12, 5), (99, 1), (6, 5)]:
        assert again.numbers([m, n])[made.row] == (m * n - 3) // 2 % (n + 7)
    assert again.numbers([5, 5]) is None
    assert again.numbers([101, 5]) is None


def test_equal_rows_and_guards_are_one():
    trace = Trace()
    n = trace.extent("n", 5)
    assert (n + 1).row == (n + 1).row
    for _ in range(10):
        assert n != 1
    assert len(trace.table().guards) == 1


def test_sizes_that_divide_by_zero_or_are_too_large_are_not_served():
    rows = (Row(SIZE, 0), Row(NUMBER, 7), Row("floordiv", 1, 0), Row("mul", 0, 0))
    table = SizeTable(rows, ())
    assert table.numbers([0]) is None
    assert table.numbers([2]) == [2, 7, 3, 4]
    assert table.numbers([1 << 32]) is None


def test_depth_costs_no_stack():
    rows = [[SIZE, 0, 0], *[["add", place, 0] for place in range(20_000)]]
    assert read_table(rows, [], 1).numbers([3])[-1] == 3 * 20_001


@pytest.mark.parametrize(
    "row",
    [
        ["pow", 0, 0],
        ["add", 2, 0],
        ["add", 0, 9],
        ["add", -1, 0],
        ["add", 0, 0.5],
        ["add", True, 0],
        ["add", 0],
        ["add", 0, 0, 0],
        [SIZE, 1, 0],
        [SIZE, -1, 0],
        [NUMBER, LARGEST + 1, 0],
        [NUMBER, "1", 0],
        [["add"], 0, 0],
        None,
        "add",
        {"add": 1},
        [None, 0, 0],
    ],
)
def test_wrong_rows_are_refused(row):
    with pytest.raises(FormatError):
        read_table([[SIZE, 0, 0], [NUMBER, 4, 0], row], [], 1)


@pytest.mark.parametrize(
    "guard", [["is", 0, 0, True], ["eq", 0, 1, True], ["eq", 0, 0, 1], ["eq", -1, 0, True], ["eq", 0, 0], 7]
)
def test_wrong_guards_are_refused(guard):
    with pytest.raises(FormatError):
        read_table([[SIZE, 0, 0]], [guard], 1)


@pytest.mark.parametrize("rows", [None, 3, "rows", {}, [[SIZE, 0, 0]] * (MAX_ROWS + 1)])
def test_what_is_no_table_is_refused(rows):
    with pytest.raises(FormatError):
        read_table(rows, [], 1)
    with pytest.raises(FormatError):
        read_table([], rows, 1)


@pytest.mark.parametrize("seed", range(200))
def test_changed_text_is_refused_or_is_a_table(seed):
    rng = random.Random(seed)
    trace, _ = traced()
    table = trace.table()
    text = list(json.dumps([table.rows, table.guards]))
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(len(text))] = rng.choice('0129[]",-.aeu')
    try:
        rows, guards = json.loads("".join(text))
        made = read_table(rows, guards, 2)
    except (ValueError, TypeError):  # FormatError is a ValueError
        return
    numbers = made.numbers([12, 5])
    assert numbers is None or len(numbers) == len(made.rows)


def test_refusals_name_the_first_question_that_is_answered_otherwise():
    table = traced()[0].table()
    assert table.refusal([5, 5], ["m", "n"]) == "sizes where m > n"
    assert table.refusal([101, 5], ["m", "n"]) == "sizes where m <= 100"
    large = SizeTable((Row(SIZE, 0), Row("mul", 0, 0)), ())
    assert "64 bits" in large.refusal([LARGEST], ["m"])


def test_texts_of_long_tables_stay_short():
    """Each row doubles the one before: written out, the last would have more characters than memory holds."""
    rows = (Row(SIZE, 0), *(Row("add", number, number) for number in range(500)), Row(NUMBER, 0))
    table = SizeTable(rows, (Guard("gt", 500, 501, True),))
    assert len(table.refusal([0], ["n"])) < 200
