"""A second kernel with a lease of its own, as if a colleague had opened another notebook."""

from __future__ import annotations

import sys

from jupyter_client.manager import KernelManager


class OtherKernel:
    """A Python kernel under `jupyter vgpu run --memory ...`. `run` executes a cell there, `close` ends the kernel and with it its lease."""

    def __init__(self, memory: str) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.kernel_spec.argv = [
            *[sys.executable, "-m", "jupyter_vgpu", "run", "--new-lease", "--memory", memory, "--"],
            *[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        ]
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, code: str) -> str:
        """What the cell printed or displayed. Raises RuntimeError with the cell's own words if it failed."""
        shown: list[str] = []

        def note(message: dict) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] in ("display_data", "execute_result"):
                shown.append(content["data"]["text/plain"] + "\n")
            elif message["msg_type"] == "error":
                shown.append(f"{content['ename']}: {content['evalue']}\n")

        reply = self._client.execute_interactive(code, timeout=120, output_hook=note)
        if reply["content"]["status"] != "ok":
            raise RuntimeError("".join(shown))
        return "".join(shown).rstrip()

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
