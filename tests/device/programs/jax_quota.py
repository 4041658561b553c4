"""JAX under a quota: what it sees, what it is denied, and that it works on. argv[1]: bytes to ask for beyond the quota.

JAX preallocates 75% of what it is shown, so the total that it saw is its own limit / 0.75.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy

beyond = int(sys.argv[1])
device = jax.devices()[0]
limit = device.memory_stats()["bytes_limit"]
result = {"platform": device.platform, "bytes_limit": limit, "total": round(limit / 0.75)}
try:
    jnp.zeros(beyond, dtype=jnp.uint8).block_until_ready()
    result["denied"] = None
except jax.errors.JaxRuntimeError as error:
    result["denied"] = str(error).split(":")[0]
values = numpy.random.default_rng(7).standard_normal((1024, 1024), dtype=numpy.float32)
product = numpy.asarray(jnp.dot(values, values, precision="highest")).astype(numpy.float64)
exact = values.astype(numpy.float64) @ values.astype(numpy.float64)
result["relative_error"] = float(numpy.linalg.norm(product - exact) / numpy.linalg.norm(exact))
print(json.dumps(result))
