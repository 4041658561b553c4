import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

import jupyter_vgpu
from jupyter_vgpu.pool.policy import Policy, policy_schema
from jupyter_vgpu.pool.policy_text import PolicyError, load_policy

from .values import GIB, MIB, TWO, device

REPOSITORY = Path(__file__).parents[2]
PUBLISHED = Path(jupyter_vgpu.__file__).with_name("policy.schema.json")

LAB = """
default_class: small
classes:
  small: {description: for exploring, memory: 8GiB, memory_guarantee: 2GiB, compute: 0.25, devices: 1}
  large: {memory: 60%, compute: 0.5, compute_cap: 0.75}
  night: {memory: 1.0, compute: 0.1, priority: batch}
bounds: {memory: 100%, compute: 0.5}
devices: [0, GPU-00000001]
device_memory: 95%
oversubscription: 1.5
queue_timeout: 10m
idle_after: 5m
suspend_after: 30m
deep_suspend_after: 1d
unmanaged: deny
"""


def test_without_a_policy_everybody_has_the_whole_of_every_device_and_nobody_waits():
    policy = Policy()
    default = policy.tenant_class(None)
    assert default.memory.of(16 * GIB) == 16 * GIB
    assert default.memory_guarantee.of(16 * GIB) == 0
    assert (default.compute, default.compute_cap, default.devices, default.priority) == (1.0, None, "all", "interactive")
    assert policy.oversubscription is None
    assert (policy.suspend_after, policy.deep_suspend_after, policy.unmanaged) == (None, None, "warn")
    assert all(policy.uses(each) and policy.pool_memory(each) == each.memory_total for each in TWO)


@pytest.mark.parametrize("text", ["", "# nothing decided\n", "---\n", "{}"])
def test_an_empty_file_is_the_default_policy(text):
    assert load_policy(text) == Policy()


def test_every_key_is_read_in_its_own_unit():
    policy = load_policy(LAB)
    small, large = policy.classes["small"], policy.classes["large"]
    assert (small.memory.of(99 * GIB), small.memory_guarantee.of(99 * GIB), small.compute, small.devices) == (8 * GIB, 2 * GIB, 0.25, 1)
    assert (large.memory.of(10 * GIB), large.compute_cap) == (6 * GIB, 0.75)
    assert policy.classes["night"].priority == "batch"
    assert (policy.queue_timeout, policy.idle_after, policy.suspend_after, policy.deep_suspend_after) == (600, 300, 1800, 86400)
    assert policy.tenant_class(None) is small


@pytest.mark.parametrize("text", ["", LAB])
def test_a_policy_that_is_shown_can_be_loaded_again(text):
    policy = load_policy(text)
    shown = json.loads(json.dumps(policy.model_dump(mode="json")))
    assert load_policy(yaml.safe_dump(shown)) == policy
    jsonschema.validate(shown, policy_schema())


def test_the_class_of_a_name_that_the_policy_lost_is_the_default_class():
    policy = load_policy("default_class: a\nclasses: {a: {memory: 1GiB}}")
    assert policy.tenant_class("gone") is policy.classes["a"]


def test_the_policy_chooses_devices_by_index_and_by_the_beginning_of_a_uuid():
    policy = Policy(devices=[1, "GPU-00000003"])
    assert [policy.uses(device(index)) for index in range(4)] == [False, True, False, True]


def test_device_memory_caps_what_the_pool_hands_out_but_never_above_the_card():
    assert Policy(device_memory="75%").pool_memory(device(0, gib=16)) == 12 * GIB
    assert Policy(device_memory="10GiB").pool_memory(device(0, gib=16)) == 10 * GIB
    assert Policy(device_memory="10GiB").pool_memory(device(0, gib=8)) == 8 * GIB


# (policy text, line, path of the field, the value, what the answer has to name)
WRONG = [
    ("clases: {}", 1, "clases", "clases", "did you mean classes?"),
    ("idle_after: 5m\nqueue_timout: 3", 2, "queue_timout", "queue_timout", "did you mean queue_timeout?"),
    ("classes:\n  small:\n    memroy: 1GiB", 3, "classes.small.memroy", "memroy", "did you mean memory?"),
    ("bounds:\n  memmory: 1GiB", 2, "bounds.memmory", "memmory", "memory, compute, compute_cap"),
    ("classes:\n  small:\n    memory: 8GiBB", 3, "classes.small.memory", "8GiBB", "8GiB"),
    ("classes:\n  small:\n    memory: 512", 3, "classes.small.memory", 512, "at least 1 MiB"),
    ("classes:\n  small:\n    memory: 0", 3, "classes.small.memory", 0, "at least 1 MiB"),
    ("classes:\n  small:\n    compute: 2", 3, "classes.small.compute", 2, "0.01 to 1.0"),
    ("classes:\n  small:\n    compute_cap: 0", 3, "classes.small.compute_cap", 0, "0.01 to 1.0"),
    ("classes:\n  small:\n    compute: yes", 3, "classes.small.compute", True, "0.01 to 1.0"),
    ("classes:\n  small:\n    priority: urgent", 3, "classes.small.priority", "urgent", "interactive"),
    ("classes:\n  small:\n    devices: 0", 3, "classes.small.devices", 0, "1 or more, or all"),
    (
        "classes:\n  small:\n    memory: 1GiB\n    memory_guarantee: 2GiB",
        4,
        "classes.small.memory_guarantee",
        "2 GiB",
        "at most the class's memory, 1 GiB",
    ),
    ("classes:\n  small:\n    description: 5", 3, "classes.small.description", 5, "string"),
    ("classes:\n  'no good': {}", 2, "classes.no good", "no good", "letters, digits"),
    ("classes:\n  7: {}", 2, "classes.7", 7, "letters, digits"),
    ("classes: [small]", 1, "classes", "['small']", "class names"),
    ("classes:\n  small: 8GiB", 2, "classes.small", "8GiB", "memory, memory_guarantee"),
    ("default_class: smal\nclasses: {small: {}}", 1, "default_class", "smal", "one of small"),
    ("default_class: small", 1, "default_class", "small", "no classes"),
    ("bounds:\n  memory: 4GiB\nclasses:\n  a:\n    memory: 8GiB", 5, "classes.a.memory", "8 GiB", "bounds.memory, 4 GiB"),
    ("bounds:\n  compute: 0.5\nclasses:\n  a:\n    compute: 0.6", 5, "classes.a.compute", 0.6, "bounds.compute, 0.5"),
    ("oversubscription: 0.5", 1, "oversubscription", 0.5, "from 1.0"),
    ("oversubscription: .nan", 1, "oversubscription", None, "from 1.0"),
    ("queue_timeout: soon", 1, "queue_timeout", "soon", "10m"),
    ("queue_timeout: never", 1, "queue_timeout", "never", "10m"),
    ("idle_after: 10m\nsuspend_after: 5m", 2, "suspend_after", 300.0, "idle_after (600 s) or longer"),
    ("deep_suspend_after: 1h", 1, "deep_suspend_after", 3600.0, "suspend_after is never"),
    ("devices: [0, 0]", 1, "devices", 0, "each once"),
    ("devices: []", 1, "devices", "[]", "all, or a list"),
    ("devices: [first]", 1, "devices", "first", "all, or a list"),
    ("device_memory: 120%", 1, "device_memory", "120%", "0.01 to 1.0"),
    ("unmanaged: kill", 1, "unmanaged", "kill", "stop"),
    ("bounds: 3", 1, "bounds", 3, "memory, compute, compute_cap"),
    ("idle_after: 5m\nidle_after: 6m", 2, "idle_after", "idle_after", "each key once"),
    ("classes:\n  a: {}\n  b: {}\n  a: {}", 4, "classes.a", "a", "each key once"),
    ("- a\n- b", 1, None, "['a', 'b']", "keys and values"),
    ("classes: {a: {memory: 1GiB}", 1, None, None, "YAML"),
    ("a: b: c", 1, None, None, "YAML"),
    ("devices: !!python/object:os.system {}", 1, None, None, "YAML"),
]


@pytest.mark.parametrize(("text", "line", "field", "value", "allowed"), WRONG, ids=[text.replace("\n", "|") for text, *_ in WRONG])
def test_a_wrong_policy_names_line_path_value_and_what_is_allowed(text, line, field, value, allowed):
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    error = caught.value
    assert (error.field, error.line) == (field, line)
    assert error.value == value or (error.value != error.value and ".nan" in text)
    assert allowed in error.allowed
    assert str(error).startswith(f"line {line}: ")
    assert field is None or f"{field}: " in str(error)


def test_several_errors_are_told_together_in_the_order_of_the_file():
    with pytest.raises(PolicyError) as caught:
        load_policy("idle_after: x\nclasses:\n  a: {compute: 2}\nunmanaged: y\n")
    assert [message.split(":")[0] for message in str(caught.value).splitlines()] == ["line 1", "line 3", "line 4"]
    assert caught.value.field == "idle_after"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "x: &a [*a]",
        "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d]",
        "idle_after: 2026-02-31",
        "x: \x00",
        "? [1, 2]\n: 3",
        "? {a: 1}\n: 3",
        "#" * (1024 * 1024 + 1),
        "a: 1\n---\nb: 2",
    ],
    ids=["deep", "cycle", "bomb", "no-date", "control", "list-key", "map-key", "long", "two-documents"],
)
def test_hostile_text_is_an_error_of_bounded_size(text):
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    assert len(str(caught.value)) < 5000
    assert len(json.dumps(caught.value.value, default=repr)) < 1000


def test_the_models_themselves_refuse_what_the_file_may_not_have():
    with pytest.raises(ValidationError):
        Policy(default_class="missing")


def test_the_published_schema_is_the_models():
    command = "from jupyter_vgpu.pool.policy import policy_schema; import json; print(json.dumps(policy_schema(), indent=2))"
    assert json.loads(PUBLISHED.read_text()) == policy_schema(), f"write it anew: python -c '{command}' > jupyter_vgpu/policy.schema.json"


def test_the_schema_itself_is_valid_and_every_key_has_a_description():
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for model in (schema, *schema["$defs"].values()):
        for name, key in model["properties"].items():
            assert key.get("description"), name
            assert "default" in key, name


# One key against another, repeated keys, and what JSON cannot say (a key that is a number, NaN).
BEYOND_A_SCHEMA = (
    "memory_guarantee: 2GiB", "default_class", "bounds:\n  memory: 4", "bounds:\n  compute: 0", "suspend_after", "idle_after: 5m\nidle",
    "  a: {}\n  b", "  7: {}", ".nan",
)  # fmt: skip


@pytest.mark.parametrize("text", [text for text, _, field, *_ in WRONG if field and not any(part in text for part in BEYOND_A_SCHEMA)])
def test_the_schema_refuses_what_the_models_refuse_as_far_as_a_schema_can(text):
    data = json.loads(json.dumps(yaml.safe_load(text)))
    assert not jsonschema.Draft202012Validator(policy_schema()).is_valid(data)


def test_the_examples_in_the_documentation_are_policies_that_model_and_schema_take():
    files = sorted((REPOSITORY / "docs/examples").glob("policy*.yaml"))
    assert len(files) >= 2
    for file in files:
        load_policy(file.read_text())
        jsonschema.validate(yaml.safe_load(file.read_text()), policy_schema())


def test_the_documentation_explains_every_key():
    text = (REPOSITORY / "docs/policy.md").read_text()
    schema = policy_schema()
    names = [name for model in (schema, *schema["$defs"].values()) for name in model["properties"]]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_limit_in_bytes_is_taken_as_it_is():
    assert load_policy(f"classes: {{a: {{memory: {3 * MIB}}}}}").classes["a"].memory.of(GIB) == 3 * MIB
