import pynvml
import pytest

from jupyter_vgpu.devices import DeviceMemory, DeviceProcess, DeviceReadings, DevicesUnavailable, Nvml

from .fake_nvml import GIB, FakeNvml, Gpu


def test_devices_come_in_nvmls_order_with_their_memory():
    devices = Nvml(FakeNvml(Gpu("GPU-a"), Gpu("GPU-b", name="Simulated GPU 16 GiB", total=16 * GIB))).devices()
    assert [(each.uuid, each.index, each.name, each.memory_total, each.simulated) for each in devices] == [
        ("GPU-a", 0, "NVIDIA H200", 140 * GIB, False),
        ("GPU-b", 1, "Simulated GPU 16 GiB", 16 * GIB, True),
    ]


def test_instances_stand_in_the_place_of_a_gpu_in_mig_mode():
    split = Gpu("GPU-b", instances={0: Gpu("MIG-0", name="NVIDIA H200 MIG 3g.71gb", total=70 * GIB), 4: Gpu("MIG-4", total=35 * GIB)})
    devices = Nvml(FakeNvml(Gpu("GPU-a"), split, Gpu("GPU-c"))).devices()
    assert [(each.uuid, each.index, each.memory_total // GIB) for each in devices] == [
        ("GPU-a", 0, 140),
        ("MIG-0", 1, 70),
        ("MIG-4", 2, 35),
        ("GPU-c", 3, 140),
    ]


def test_a_gpu_in_mig_mode_without_instances_is_no_device():
    assert Nvml(FakeNvml(Gpu("GPU-a", instances={}))).devices() == []


def test_a_device_that_tells_no_total_is_left_alone_and_said_so(caplog):
    nvml = Nvml(FakeNvml(Gpu("GPU-a", missing={"memory", "memory_v2"}), Gpu("GPU-b", missing={"handle"}), Gpu("GPU-c")))
    assert [(each.uuid, each.index) for each in nvml.devices()] == [("GPU-c", 0)]
    assert "device 0" in caplog.text and "GPU 1" in caplog.text


def test_a_gpu_that_knows_no_mig_mode_is_a_device():
    assert len(Nvml(FakeNvml(Gpu("GPU-a", missing={"mig"}))).devices()) == 1


def test_used_memory_leaves_out_the_drivers_own_reserve_where_the_driver_tells_it():
    gpu = Gpu("GPU-a", used=3 * GIB, reserved=GIB)
    nvml = Nvml(FakeNvml(gpu))
    assert nvml.memory("GPU-a") == DeviceMemory(total=140 * GIB, used=3 * GIB, free=136 * GIB)
    gpu.missing.add("memory_v2")
    assert nvml.memory("GPU-a") == DeviceMemory(total=140 * GIB, used=4 * GIB, free=136 * GIB)


def test_a_process_is_listed_once_though_it_computes_and_draws():
    gpu = Gpu("GPU-a", processes={30: 5 * GIB, 10: None, 20: None}, drawing={30: 5 * GIB, 20: GIB, 40: 7})
    assert Nvml(FakeNvml(gpu)).processes("GPU-a") == [
        DeviceProcess(pid=10, memory_used=None),
        DeviceProcess(pid=20, memory_used=GIB),
        DeviceProcess(pid=30, memory_used=5 * GIB),
        DeviceProcess(pid=40, memory_used=7),
    ]


@pytest.mark.parametrize(("versions", "pids"), [({2}, [10]), (set(), [])])
def test_a_driver_without_the_newest_process_list_gives_its_own_or_none(versions, pids):
    fake = FakeNvml(Gpu("GPU-a", processes={10: GIB}))
    fake.process_list_versions = versions
    assert [process.pid for process in Nvml(fake).processes("GPU-a")] == pids


def test_nvidia_ml_py_says_of_a_missing_process_list_what_is_understood_here(monkeypatch):
    """With pynvml's own functions over a library that has none of the lists."""
    fake = FakeNvml(Gpu("GPU-a"))

    def missing(name):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", missing)
    monkeypatch.setattr(FakeNvml, "NVMLError", pynvml.NVMLError)
    for name in [name for name in dir(FakeNvml) if "RunningProcesses" in name]:
        monkeypatch.setattr(FakeNvml, name, staticmethod(getattr(pynvml, name)))
    assert Nvml(fake).processes("GPU-a") == []


def test_readings_come_in_the_units_of_the_api():
    assert Nvml(FakeNvml(Gpu("GPU-a"))).readings("GPU-a") == DeviceReadings(utilization=0.37, temperature=41.0, power=123.5)


@pytest.mark.parametrize("missing", ["utilization", "temperature", "power"])
def test_a_reading_that_a_device_lacks_is_none_and_the_others_are_read(missing):
    readings = Nvml(FakeNvml(Gpu("GPU-a", missing={missing}))).readings("GPU-a")
    assert [name for name in ("utilization", "temperature", "power") if getattr(readings, name) is None] == [missing]


def test_a_device_that_falls_off_its_bus_reads_as_nothing_and_the_others_go_on():
    first, second = Gpu("GPU-a"), Gpu("GPU-b", used=GIB)
    nvml = Nvml(FakeNvml(first, second))
    assert len(nvml.devices()) == 2
    first.lost = True
    assert (nvml.memory("GPU-a"), nvml.processes("GPU-a"), nvml.readings("GPU-a")) == (None, [], DeviceReadings())
    assert nvml.memory("GPU-b").used == GIB


def test_an_unknown_device_reads_as_nothing():
    nvml = Nvml(FakeNvml(Gpu("GPU-a")))
    assert (nvml.memory("GPU-x"), nvml.processes("GPU-x"), nvml.readings("GPU-x")) == (None, [], DeviceReadings())


def test_a_device_is_read_though_nobody_listed_the_devices_before():
    assert Nvml(FakeNvml(Gpu("GPU-a"))).memory("GPU-a").total == 140 * GIB


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "not installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "permission"),
        (pynvml.NVML_ERROR_UNKNOWN, "error 999"),
    ],
)
def test_an_nvml_that_does_not_start_says_why_in_plain_words(error, reason):
    fake = FakeNvml(Gpu("GPU-a"))
    fake.broken = error
    with pytest.raises(DevicesUnavailable, match=reason):
        Nvml(fake)


def test_nvml_may_vanish_and_come_back():
    fake = FakeNvml(Gpu("GPU-a", used=GIB))
    nvml = Nvml(fake)
    assert nvml.memory("GPU-a").used == GIB
    fake.broken = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    for action in (nvml.devices, lambda: nvml.memory("GPU-a"), lambda: nvml.processes("GPU-a"), lambda: nvml.readings("GPU-a")):
        with pytest.raises(DevicesUnavailable):
            action()
    fake.broken, fake.gpus = None, [Gpu("GPU-a", used=2 * GIB)]
    assert nvml.memory("GPU-a").used == 2 * GIB
    assert fake.inits == 2


def test_a_count_that_nvml_does_not_tell_is_no_list_of_devices():
    machine = FakeNvml(Gpu("GPU-1"))
    nvml = Nvml(machine)
    machine.broken = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(DevicesUnavailable, match="how many"):
        nvml.devices()


def test_a_card_that_cannot_be_opened_is_said_once_however_often_it_is_asked_for(caplog):
    lost = Gpu("GPU-1", lost=True)
    nvml = Nvml(FakeNvml(lost, Gpu("GPU-2")))
    for _ in range(3):
        assert nvml.memory("GPU-1") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    lost.lost = False
    assert nvml.memory("GPU-1") is not None
    lost.lost = True
    nvml.devices()
    assert len(caplog.records) == 2, "it was well in between"


def test_close_gives_nvml_back_once():
    fake = FakeNvml(Gpu("GPU-a"))
    nvml = Nvml(fake)
    nvml.devices()
    nvml.close()
    nvml.close()
    assert (fake.inits, fake.shutdowns) == (1, 1)


def test_every_function_that_is_used_exists_in_nvidia_ml_py():
    for name in dir(FakeNvml):
        if name.startswith("nvml"):
            assert hasattr(pynvml, name), name
