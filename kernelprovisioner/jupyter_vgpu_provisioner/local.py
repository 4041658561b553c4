"""The provisioner `vgpu`: jupyter_client's local launch, under a lease."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner
from traitlets import Float

from jupyter_vgpu.arbiter.client import ArbiterUnavailable, AsyncArbiterClient
from jupyter_vgpu.arbiter.runtime import Runtime, find_runtime
from jupyter_vgpu.devices import choose
from jupyter_vgpu.native import locate
from jupyter_vgpu.native.environment import CreatedLease, tenant_environment
from jupyter_vgpu.pool.model import InvalidValue

from .request import lease_request, runs_python

REQUEST_BOUND = 1.0
"""Seconds that a running kernel's life (start, shutdown) may wait for an answer of the arbiter."""

INTERRUPT_BOUND = 0.2
"""Seconds that an interrupt's signal may wait for the arbiter; its answer takes about a millisecond."""


class VgpuProvisioner(LocalProvisioner):
    """Starts a kernel as `LocalProvisioner` does, as a tenant of the GPU pool.

    The lease is taken before the first launch, kept through every kind of restart, and given back by ``cleanup(restart=False)``; a kernel
    manager that gives up calls nothing, then the server extension releases it, or the arbiter when server and kernel are gone. No failure
    of ours fails a kernel: it starts without a lease and the log says why.

    Several event loops may call one instance (a blocking `KernelManager` runs each call by itself), so no connection outlives a call.
    """

    lease_timeout = Float(
        5.0,
        min=0.0,
        config=True,
        help="Seconds that a kernel's start may take longer for its lease (starting the arbiter included) before it starts without one.",
    )

    _created: Optional[CreatedLease] = None
    _runtime: Optional[Runtime] = None
    _joined_token: Optional[str] = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Adds the tenant's environment to what the local launch would use. Called by `KernelManager` before start and each restart."""
        kwargs = await super().pre_launch(**kwargs)
        try:
            kwargs["env"] = await asyncio.wait_for(self._environment(kwargs["env"]), self.lease_timeout)
        except asyncio.TimeoutError:
            await self._unmanaged(f"the arbiter did not answer within {self.lease_timeout:g} s")
        except Exception as error:  # whatever it is, it is ours and not the kernel's
            expected = isinstance(error, (ArbiterUnavailable, InvalidValue, OSError, locate.NativeUnavailable))
            await self._unmanaged(str(error), unexpected=not expected)
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Launches `cmd` as it is and names its process to the arbiter. Called by `KernelManager` after `pre_launch`."""
        try:
            connection_info = await super().launch_kernel(cmd, **kwargs)
        except BaseException:
            await self._release()  # nobody calls cleanup for a kernel that never was
            raise
        if self._created is not None and self.pid is not None:
            lease_id, pid = self._created["lease"]["id"], self.pid
            await self._tell("name the kernel's process to", lambda client: client.add_process(lease_id, pid))
        return connection_info

    async def send_signal(self, signum: int) -> None:
        """Before an interrupt, ends the tenant's waits for the GPU: a thread inside a CUDA call sees no signal.

        Called by `KernelManager` for interrupts in signal mode, and by `kill` and `terminate`.
        """
        if signum == signal.SIGINT and self.has_process:
            if self._created is not None:
                lease_id = self._created["lease"]["id"]
                await self._tell("interrupt the lease at", lambda client: client.interrupt(lease_id), bound=INTERRUPT_BOUND)
            elif self._joined_token is not None:
                await self._tell("interrupt the lease at", lambda client: client.interrupt("self"), bound=INTERRUPT_BOUND)
        await super().send_signal(signum)

    async def cleanup(self, restart: bool = False) -> None:
        """Gives the lease back unless a restart follows. Called by `KernelManager` when the kernel's process has ended.

        ``kill(restart=False)`` must not do this: an immediate restart calls it first.
        """
        await super().cleanup(restart=restart)
        if not restart:
            await self._release()

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Adds what a later process needs to keep the lease. As secret as the connection's key, which is in there too."""
        info = await super().get_provisioner_info()
        if self._created is not None and self._runtime is not None:
            info["vgpu"] = {
                "lease": self._created["lease"]["id"],
                "token": self._created["token"],
                "shim_socket": self._created["shim_socket"],
                "socket": str(self._runtime.socket),
            }
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Takes the lease of a kernel that another process started. The inverse of `get_provisioner_info`."""
        await super().load_provisioner_info(provisioner_info)
        known = provisioner_info.get("vgpu")
        if known is not None:
            socket = Path(known["socket"])
            self._runtime = Runtime(directory=socket.parent, socket=socket)
            self._created = CreatedLease(lease={"id": known["lease"]}, token=known["token"], shim_socket=known["shim_socket"])

    async def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment to start in: `environ` itself where there is nothing to manage. Raises what goes wrong."""
        if environ.get("VGPU_TOKEN"):
            return self._joined(environ)
        if choose(environ) is None:
            return dict(environ)
        if (reason := locate.unavailable_reason()) is not None:
            raise locate.NativeUnavailable(reason)
        client = await AsyncArbiterClient.start(environ)
        try:
            self._runtime = client.runtime
            self._created = await self._current(client, self._created)
            if self._created is None:
                # A file system may hang; a thread's wait is bounded by pre_launch, a read in the loop would not be.
                request = await asyncio.to_thread(lease_request, kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, environ=environ)
                self._created = await client.create_lease(**request)
                if message := self._created["lease"]["message"]:
                    self.log.warning("GPU lease of kernel %s: %s", self.kernel_id, message)
        finally:
            client.close()
        return tenant_environment(environ, created=self._created, socket=client.socket, startup=runs_python(self.kernel_spec))

    def _joined(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a kernel that a tenant starts: its own lease goes on, whoever gave it also gives it back."""
        self._runtime = find_runtime(environ)
        self._joined_token = environ["VGPU_TOKEN"]
        own = CreatedLease(
            lease={"id": environ.get("VGPU_LEASE", "self")},
            token=environ["VGPU_TOKEN"],
            shim_socket=environ.get("VGPU_SHIM_SOCKET") or str(self._runtime.shim_socket),
        )
        return tenant_environment(environ, created=own, socket=self._runtime.socket, startup=runs_python(self.kernel_spec))

    @staticmethod
    async def _current(client: AsyncArbiterClient, created: Optional[CreatedLease]) -> Optional[CreatedLease]:
        """`created` with its lease as it is now; None if it has ended."""
        if created is None:
            return None
        try:
            return {**created, "lease": await client.lease(created["lease"]["id"])}
        except InvalidValue:
            return None

    async def _unmanaged(self, reason: str, *, unexpected: bool = False) -> None:
        self.log.warning("Kernel %s starts without a GPU lease: %s", self.kernel_id, reason, exc_info=unexpected)
        await self._release()
        self._joined_token = None

    async def _release(self) -> None:
        """Gives back what this kernel holds. Does nothing without a lease; never raises."""
        if self._runtime is None or self._joined_token is not None:
            return
        created, self._created = self._created, None

        async def release(client: AsyncArbiterClient) -> None:
            # An answer that came too late leaves a lease behind whose id nobody learned.
            ids = [created["lease"]["id"]] if created is not None else [lease["id"] for lease in await client.leases(self.kernel_id)]
            for lease_id in ids:
                await client.release(lease_id)

        await self._tell("give the lease back to", release)

    async def _tell(self, what: str, request: Callable[[AsyncArbiterClient], Awaitable[None]], *, bound: float = REQUEST_BOUND) -> None:
        """One request to the arbiter, bounded in time; what goes wrong is a line in the log."""
        assert self._runtime is not None
        client = AsyncArbiterClient(self._runtime, token=self._joined_token)
        try:
            await asyncio.wait_for(request(client), bound)
        except InvalidValue as error:
            if error.code != "not_found":  # the lease has ended by itself: nothing is left to do
                self.log.warning("Kernel %s: could not %s the GPU arbiter: %s", self.kernel_id, what, error)
        except (ArbiterUnavailable, asyncio.TimeoutError) as error:
            reason = str(error) or f"no answer within {bound:g} s"
            self.log.warning("Kernel %s: could not %s the GPU arbiter: %s", self.kernel_id, what, reason)
        finally:
            client.close()
