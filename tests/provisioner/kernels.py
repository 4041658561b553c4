"""Running cells in a kernel."""

from __future__ import annotations

import asyncio
from typing import Any

MEMORY = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
print(driver.cuMemGetInfo()[2])
"""


async def run(manager: Any, code: str, *, timeout: float = 60.0) -> str:
    """What `code` prints in the manager's kernel; an error in it fails the test with its traceback."""
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=timeout)
        printed: list[str] = []

        def collect(message: dict) -> None:
            content = message["content"]
            assert message["msg_type"] != "error", "\n".join(content["traceback"])
            if message["msg_type"] == "stream":
                printed.append(content["text"])

        await client.execute_interactive(code, output_hook=collect, timeout=timeout)
        return "".join(printed).strip()
    finally:
        client.stop_channels()


async def until(condition: Any, *, within: float = 15.0, what: str = "the condition") -> Any:
    """The condition's first true value; it may be a coroutine function. Fails after `within` seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not hold within {within} s"
        await asyncio.sleep(0.02)
