"""A notebook kernel that is a fork of the process executing the notebook, imports included.

jupyter_client would start a new interpreter, which takes seconds to import torch. Instead, the fork
is made first and waits for its connection file.
"""

import asyncio
import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from jupyter_client.manager import AsyncKernelManager

FORK = multiprocessing.get_context("fork")
SHUTDOWN_SECONDS = 5


def serve(orders: Connection) -> None:
    """Wait for a connection file and a working folder, then run as the kernel until shut down."""
    # With this end open, the fork would wait forever for orders from a parent that was killed.
    Manager.orders.close()
    connection_file, folder = orders.recv()
    os.chdir(folder)
    from ipykernel.kernelapp import IPKernelApp

    parent = f"--IPKernelApp.parent_handle={os.getppid()}"
    IPKernelApp.launch_instance(argv=["-f", connection_file, parent])


class Manager(AsyncKernelManager):
    """The kernel manager that nbclient requires, for the one kernel that `fork` has made."""

    process: ClassVar[Any]
    orders: ClassVar[Connection]

    @classmethod
    def fork(cls) -> None:
        """Make the kernel's process. Call this before any thread starts."""
        receiving_end, cls.orders = FORK.Pipe(duplex=False)
        cls.process = FORK.Process(target=serve, args=(receiving_end,))
        cls.process.start()
        receiving_end.close()

    async def start_kernel(self, **options: Any) -> None:
        """Send the waiting fork its connection file and this process's folder, set by papermill."""
        self.write_connection_file()
        self.orders.send((self.connection_file, os.getcwd()))

    async def _async_is_alive(self) -> bool:
        return self.process.is_alive()

    is_alive = _async_is_alive

    async def shutdown_kernel(self, **options: Any) -> None:
        """Ask the kernel to end and wait some seconds, in which a notebook's exit handlers run."""
        control = self.connect_control()
        self.session.send(control, "shutdown_request", {"restart": False})
        await asyncio.to_thread(self.process.join, SHUTDOWN_SECONDS)
