import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_vgpu.pool.model import InvalidValue
from jupyter_vgpu.pool.units import (
    SIZE_MAXIMUM,
    Amount,
    format_exact,
    format_fraction,
    format_size,
    parse_amount,
    parse_duration,
    parse_fraction,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (123, 123),
        ("123", 123),
        ("8GiB", 8 * 1024**3),
        (" 8 gib ", 8 * 1024**3),
        ("8Gi", 8 * 1024**3),
        ("8G", 8 * 1024**3),
        ("8GB", 8 * 1000**3),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("512 MiB", 512 * 1024**2),
        ("2TiB", 2 * 1024**4),
        ("64KiB", 65536),
        ("7 B", 7),
    ],
)
def test_a_size_is_read_as_people_write_it(text, size):
    assert parse_size(text, field="memory") == size


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -1,
        1.5,
        "",
        "GiB",
        "-1GiB",
        "8 XiB",
        "8GiBs",
        "1e3",
        "0x10",
        "1.5",
        "8,5GiB",
        "٨GiB",
        [],
        {},
        2**63,
        "9" * 30,
        "99999999TiB",
        "1_000",
    ],
)
def test_a_malformed_size_names_field_value_and_what_is_allowed(value):
    with pytest.raises(InvalidValue) as caught:
        parse_size(value, field="memory")
    assert caught.value.field == "memory"
    assert caught.value.value == value
    assert "8GiB" in caught.value.allowed
    assert "memory" in str(caught.value) and repr(value) in str(caught.value)


@settings(deadline=None)
@given(st.integers(0, SIZE_MAXIMUM))
def test_what_is_shown_as_exact_is_read_back_as_the_same_bytes(size):
    shown = format_exact(size)
    exact = shown[shown.index("(") + 1 :].removesuffix(" bytes)") if "(" in shown else shown
    assert parse_size(exact, field="memory") == size


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (512 * 1024**2, "512 MiB"), (8 * 1024**3, "8 GiB"), (3 * 1024**3 // 2, "1.5 GiB")]
)
def test_a_size_is_shown_in_the_largest_unit(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(("value", "fraction"), [(0.25, 0.25), (1, 1.0), (0.01, 0.01), ("0.5", 0.5), ("25%", 0.25), ("100 %", 1.0)])
def test_a_fraction_is_a_number_or_a_percentage(value, fraction):
    assert parse_fraction(value, field="compute") == fraction


@pytest.mark.parametrize(
    "value", [0, 2, 0.001, 1.01, -0.5, True, None, "", "half", "0%", "101%", float("nan"), float("inf"), 10**400, [], "0.5GiB"]
)
def test_a_fraction_outside_a_hundredth_to_one_is_refused(value):
    with pytest.raises(InvalidValue) as caught:
        parse_fraction(value, field="share")
    assert (caught.value.field, caught.value.code) == ("share", "invalid")
    assert "0.01" in caught.value.allowed and "1.0" in caught.value.allowed


@settings(deadline=None)
@given(st.floats(0.01, 1.0))
def test_a_fraction_shown_is_read_back_as_the_same_float(fraction):
    assert parse_fraction(format_fraction(fraction), field="compute") == fraction


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        ("8GiB", Amount(bytes=8 * 1024**3)),
        (8 * 1024**3, Amount(bytes=8 * 1024**3)),
        (0.25, Amount(fraction=0.25)),
        ("0.25", Amount(fraction=0.25)),
        ("25%", Amount(fraction=0.25)),
        (1.0, Amount(fraction=1.0)),
        (1, Amount(fraction=1.0)),
        (0, Amount(bytes=0)),
        ("0.5GiB", Amount(bytes=1024**3 // 2)),
    ],
)
def test_an_amount_is_a_size_or_a_fraction_of_a_device(value, amount):
    assert parse_amount(value, field="memory") == amount


@pytest.mark.parametrize("value", [True, 1.5, "150%", "0.0", "much", None, [1], -5])
def test_an_amount_that_is_neither_names_both_forms(value):
    with pytest.raises(InvalidValue) as caught:
        parse_amount(value, field="memory")
    assert "8GiB" in caught.value.allowed and "25%" in caught.value.allowed


@settings(deadline=None)
@given(
    st.one_of(
        st.integers(0, SIZE_MAXIMUM).map(lambda size: Amount(bytes=size)), st.floats(0.01, 1.0).map(lambda part: Amount(fraction=part))
    )
)
def test_an_amount_written_is_read_back_as_the_same_amount(amount):
    assert parse_amount(str(amount), field="memory") == amount


def test_a_fraction_is_of_the_device_and_a_size_is_what_it_is():
    assert Amount(fraction=0.25).of(16 * 1024**3) == 4 * 1024**3
    assert Amount(bytes=5).of(3) == 5


@pytest.mark.parametrize(
    ("value", "seconds"), [(0, 0), (90, 90), (0.5, 0.5), ("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), ("5", 5)]
)
def test_a_duration_is_read_in_seconds(value, seconds):
    assert parse_duration(value, field="idle_after") == seconds


@pytest.mark.parametrize("value", [True, None, -1, "ten minutes", "10 min", "1:30", float("nan"), float("inf"), 10**400, []])
def test_a_malformed_duration_is_refused(value):
    with pytest.raises(InvalidValue) as caught:
        parse_duration(value, field="idle_after")
    assert caught.value.field == "idle_after"


@settings(deadline=None)
@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers(), max_size=2)))
def test_whatever_comes_is_read_or_refused_and_nothing_else(value):
    for parse in (parse_size, parse_fraction, parse_amount, parse_duration):
        try:
            parse(value, field="x")
        except InvalidValue as error:
            assert error.field == "x" and error.allowed
