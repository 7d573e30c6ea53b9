"""A notebook's kernel as a fork of the process that executes the notebook, with all that it has imported.

jupyter_client would start an interpreter that imports torch for seconds; here the fork is made first and waits.
"""

import asyncio
import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from jupyter_client.manager import AsyncKernelManager

FORK = multiprocessing.get_context("fork")


def serve(orders: Connection) -> None:
    """Wait for a connection file and a folder, then be the kernel until it is shut down."""
    Manager.orders.close()  # or this end would wait for ever for a process that was killed
    connection_file, folder = orders.recv()
    os.chdir(folder)
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(argv=["-f", connection_file, f"--IPKernelApp.parent_handle={os.getppid()}"])


class Manager(AsyncKernelManager):
    """What nbclient asks of a kernel: here of the one that `fork` has made."""

    process: ClassVar[Any]
    orders: ClassVar[Connection]

    @classmethod
    def fork(cls) -> None:
        """Make the kernel's process. Call it before anything starts a thread."""
        theirs, cls.orders = FORK.Pipe(duplex=False)
        cls.process = FORK.Process(target=serve, args=(theirs,))
        cls.process.start()
        theirs.close()

    async def start_kernel(self, **options: Any) -> None:
        """Tell the waiting fork where to listen, and to work where papermill has led this process."""
        self.write_connection_file()
        self.orders.send((self.connection_file, os.getcwd()))

    async def _async_is_alive(self) -> bool:
        return self.process.is_alive()

    is_alive = _async_is_alive

    async def shutdown_kernel(self, **options: Any) -> None:
        """Ask the kernel to end, and wait some seconds: what a notebook leaves for its exit is done then."""
        control = self.connect_control()
        self.session.send(control, "shutdown_request", {"restart": False})
        await asyncio.to_thread(self.process.join, 5)
