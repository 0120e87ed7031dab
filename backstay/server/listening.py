"""The server that listens: it ends its long streams before it waits for the other requests to end."""

import socket

import uvicorn
from fastapi import FastAPI


class Listening(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service = getattr(self._app.state, "service", None)  # none if it never started
        if service is not None:
            service.lookout.close()
        await super().shutdown(sockets)
