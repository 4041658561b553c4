"""Numba's memory API on the simulated GPU: arrays, streams, events, pinned and managed memory."""

from __future__ import annotations

GIB = 1024**3
CONTEXT = 300 * 1024**2


def test_arrays_go_to_the_device_and_come_back(programs):
    lines = programs.run("""
        import numpy
        from numba import cuda
        values = numpy.arange(1_000_000, dtype=numpy.float32)
        on_device = cuda.to_device(values)
        copy = cuda.device_array_like(on_device)
        copy.copy_to_device(on_device)
        print((copy.copy_to_host() == values).all(), (on_device[10:20].copy_to_host() == values[10:20]).all())
        matrix = cuda.to_device(numpy.arange(12, dtype=numpy.int64).reshape(3, 4))
        print(matrix[1].copy_to_host().tolist(), cuda.current_context().device.name)
    """)
    assert lines == ["True True", "[4, 5, 6, 7] Simulated GPU 16 GiB"]


def test_memory_info_follows_what_is_held_and_given_back(programs):
    lines = programs.run("""
        import numpy
        from numba import cuda
        info = lambda: cuda.current_context().get_memory_info()
        print(info().total, info().total - info().free)
        block = cuda.device_array(GIB, numpy.uint8)
        print(info().total - info().free)
        del block
        cuda.current_context().memory_manager.deallocations.clear()
        print(info().total - info().free)
        try:
            cuda.device_array(17 * GIB, numpy.uint8)
        except cuda.cudadrv.driver.CudaAPIError as error:
            print(error.code == CUresult.CUDA_ERROR_OUT_OF_MEMORY or error.code)
        print(cuda.to_device(numpy.ones(3)).copy_to_host().sum())
    """)
    assert lines == [f"{16 * GIB} {CONTEXT}", str(CONTEXT + GIB), str(CONTEXT), "True", "3.0"]


def test_streams_and_events_order_and_time_copies(programs):
    lines = programs.run("""
        import numpy
        from numba import cuda
        stream, start, end = cuda.stream(), cuda.event(), cuda.event()
        values = cuda.pinned_array(1 << 20, numpy.float32)
        values[:] = 3
        start.record(stream)
        on_device = cuda.to_device(values, stream=stream)
        back = on_device.copy_to_host(stream=stream)
        end.record(stream)
        stream.synchronize()
        print((back == 3).all(), end.query(), cuda.event_elapsed_time(start, end) > 0)
        with stream.auto_synchronize():
            on_device.copy_to_host(values, stream=stream)
    """)
    assert lines == ["True True True"]


def test_pinned_mapped_managed_and_registered_arrays_work(programs):
    lines = programs.run("""
        import numpy
        from numba import cuda
        mapped, managed = cuda.mapped_array(100), cuda.managed_array(100)
        mapped[:], managed[:] = 1, 2
        for array in (mapped, managed):
            on_device = cuda.device_array(100)
            cuda.cudadrv.driver.device_to_device(on_device, array, 800)
            print(on_device.copy_to_host().sum())
        own = numpy.ones(100_000)
        with cuda.pinned(own):
            print(cuda.to_device(own, stream=cuda.stream()).copy_to_host().sum())
    """)
    assert lines == ["100.0", "200.0", "100000.0"]


def test_two_devices_are_two_contexts(programs):
    lines = programs.run("""
        import numpy
        from numba import cuda
        print(len(cuda.gpus))
        for gpu in cuda.gpus:
            with gpu:
                block = cuda.device_array(GIB, numpy.uint8)
                print(gpu.id, cuda.current_context().get_memory_info().free // MIB)
    """)
    free = (16 * GIB - CONTEXT - GIB) // 1024**2
    assert lines == ["2", f"0 {free}", f"1 {free}"]
