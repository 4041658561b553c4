import pytest

from jupyter_vgpu.devices import simulated_spec
from jupyter_vgpu.pool.model import InvalidValue

GIB, MIB = 1024**3, 1024**2


@pytest.mark.parametrize(
    ("text", "memory", "context"),
    [
        ("2x16GiB", (16 * GIB, 16 * GIB), 300 * MIB),
        ("16GiB", (16 * GIB,), 300 * MIB),
        ("16GiB,8GiB", (16 * GIB, 8 * GIB), 300 * MIB),
        ("1x512MiB,context=64MiB", (512 * MIB,), 64 * MIB),
        ("context=0MiB,2x1TiB", (1024 * GIB, 1024 * GIB), 0),
        ("16x2MiB", (2 * MIB,) * 16, 300 * MIB),
    ],
)
def test_a_specification_names_devices_and_what_a_context_takes(text, memory, context):
    spec = simulated_spec({"VGPU_SIMULATED": text})
    assert (spec.text, spec.memory, spec.context) == (text, memory, context)


@pytest.mark.parametrize("environ", [{}, {"VGPU_SIMULATED": ""}])
def test_unset_or_empty_means_no_simulation(environ):
    assert simulated_spec(environ) is None


@pytest.mark.parametrize(
    "text",
    [
        "yes", "1", "2x", "x16GiB",
        "0x16GiB", "17x1GiB", "10x1GiB,7x1GiB", "2x0GiB", "3MiB", "17TiB", "16gib", "16 GiB", "16GB", "2x16GiB,",
        "context=1GiB",
        "2x16GiB,context=1", "2x16GiB,contxt=1GiB", "2x16GiB,context=999999999999GiB", "-1x16GiB", "2x16GiB/../..", "٢x16GiB",
    ],
)  # fmt: skip
def test_a_malformed_specification_names_the_variable_the_value_and_what_is_allowed(text):
    with pytest.raises(InvalidValue) as caught:
        simulated_spec({"VGPU_SIMULATED": text})
    assert (caught.value.field, caught.value.value) == ("VGPU_SIMULATED", text)
    assert "2x16GiB" in caught.value.allowed
