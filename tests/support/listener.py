"""A listener on this machine: notices what leaves a page."""

import contextlib
import socket
import threading

from tests.support.waiting import HANG_S


class Listener:
    """Sockets of this machine, TCP and UDP on one port, that notice every connection and packet."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.reached: list[str] = []
        self.page = ""  # the body of the answer to GET /
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._receive, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(HANG_S)
        said = ""
        with connection:
            with contextlib.suppress(OSError):
                said = connection.recv(2048).decode("latin-1").partition("\r\n")[0]
            self.reached.append(f"tcp {said}")  # before the answer: whoever has read that looks here
            if said.startswith("GET / "):
                with contextlib.suppress(OSError):
                    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{self.page}".encode())

    def _receive(self) -> None:
        while True:
            try:
                self.reached.append(f"udp {len(self.udp.recvfrom(2048)[0])} bytes")
            except OSError:
                return

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()
