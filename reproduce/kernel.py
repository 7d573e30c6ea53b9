"""A notebook's kernel as a fork of the process that executes the notebook, with all that it has imported.

jupyter_client would start an interpreter that imports torch for seconds; here the fork is made first and waits.
"""

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerBase

FORK = multiprocessing.get_context("fork")


def serve(orders: Connection) -> None:
    """Wait for a connection file and a folder, then be the kernel until it is shut down."""
    connection_file, folder = orders.recv()
    os.chdir(folder)
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(argv=["-f", connection_file, f"--IPKernelApp.parent_handle={os.getppid()}"])


class Forked(KernelProvisionerBase):
    """What jupyter_client asks of a kernel's process."""

    process: Any = None
    orders: Any = None

    @property
    def has_process(self) -> bool:
        """Whether the kernel was started."""
        return self.process is not None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Tell the waiting fork where to listen."""
        self.process, self.orders = Manager.waiting
        self.parent.write_connection_file()
        self.orders.send((self.parent.connection_file, kwargs.get("cwd", os.getcwd())))
        return self.parent.get_connection_info()

    async def poll(self) -> int | None:
        """Return the exit code, or None while the kernel lives."""
        return self.process.exitcode

    async def wait(self) -> int | None:
        """Return the exit code when the kernel has ended."""
        while self.process.is_alive():
            await asyncio.sleep(0.05)
        return self.process.exitcode

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel."""
        if self.process.is_alive():
            os.kill(self.process.pid, signum)

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Ask the kernel to end."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Leave nothing behind."""
        self.orders.close()


class Manager(AsyncKernelManager):
    """Starts the one kernel that `fork` has made."""

    waiting: ClassVar[tuple[Any, Connection]]

    @classmethod
    def fork(cls) -> None:
        """Make the kernel's process. Call it before anything starts a thread."""
        theirs, ours = FORK.Pipe(duplex=False)
        process = FORK.Process(target=serve, args=(theirs,))
        process.start()
        theirs.close()
        cls.waiting = process, ours

    async def _async_pre_start_kernel(self, **options: Any) -> tuple[list[str], dict[str, Any]]:
        self.shutting_down, self.kernel_id = False, "forked"
        self.provisioner = Forked(parent=self, kernel_id=self.kernel_id, kernel_spec=self.kernel_spec)
        return [], options
