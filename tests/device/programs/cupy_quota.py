"""CuPy under a quota: what it sees, what it is denied, and that it works on. argv[1]: bytes to ask for beyond the quota."""

import json
import sys

import cupy
import numpy

beyond = int(sys.argv[1])
free, total = cupy.cuda.Device(0).mem_info
result = {"total": total, "free": free, "properties_total": cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"]}
try:
    cupy.empty(beyond, dtype=cupy.uint8)
    result["denied"] = None
except cupy.cuda.memory.OutOfMemoryError as error:
    result["denied"] = type(error).__name__
values = numpy.random.default_rng(7).standard_normal((1024, 1024), dtype=numpy.float32)
product = cupy.asnumpy(cupy.asarray(values) @ cupy.asarray(values)).astype(numpy.float64)
exact = values.astype(numpy.float64) @ values.astype(numpy.float64)
result["relative_error"] = float(numpy.linalg.norm(product - exact) / numpy.linalg.norm(exact))
result["elementwise"] = bool(cupy.allclose(cupy.asarray(values) * 2, values * 2))
print(json.dumps(result))
