"""Zarr stores behind URLs: S3 and what speaks like it, Google, Azure and HTTP by obstore; other schemes by fsspec.

Keys, endpoint and region come from the environment and from the profiles that AWS tools keep. A request that fails on
the way or at the server is tried again, for two minutes; what cannot be cured by waiting is an InputError that says
what to set. Keys are never in messages, and never in what is sent to Dask workers: these take their own.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from zarr.storage import FsspecStore, ObjectStore

from streampca.errors import InputError, redacted
from streampca.progress import Progress, Step, silent

Client: TypeAlias = Any  # S3Store, GCSStore, AzureStore or HTTPStore of obstore

# Seconds in which a request is tried again; the first one of a store only finds out whether there is a server.
PATIENCE, FIRST_PATIENCE = 120.0, 5.0
# Seconds after which a server that sends nothing is taken for dead.
SILENCE, FIRST_SILENCE = 30.0, 15.0
# Larger files are sent in parts of this size.
PART_BYTES = 8 << 20
SENDERS = 4
# Seconds before files that did not arrive are sent again.
LOST_PAUSES = (0, 1, 4)
ROOT = "zarr.json"
# Lies beside what is not whole yet.
UNFINISHED = ".streampca-unfinished"

_AWS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=YES for public data"
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for public data"
_AZURE = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for public data"
# What says who asks, for each scheme that obstore serves.
WHO = {
    "s3": _AWS, "s3a": _AWS, "gs": _GOOGLE, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE,
    "http": "the address", "https": "the address",
}  # fmt: skip
# Settings of a profile whose keys only AWS tools can get.
_BY_OTHERS = {"sso_session", "sso_start_url", "role_arn", "credential_process"}
# What S3 calls an error: what it means, what to do.
_CODES = {
    "InvalidAccessKeyId": ("the server does not know the access key", "check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL"),
    "SignatureDoesNotMatch": ("the secret is not that of the access key", "check AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": ("the session of these keys has ended", "get new ones and set AWS_SESSION_TOKEN"),
    "InvalidToken": ("the server does not know the session", "check AWS_SESSION_TOKEN, or unset it"),
    "RequestTimeTooSkewed": ("the clock of this machine differs from the server's", "set the clock"),
    "NoSuchBucket": ("there is no such bucket", "check its name, AWS_ENDPOINT_URL and AWS_REGION"),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "set AWS_REGION"),
}


class RemoteStore(ObjectStore[Any]):
    """A Zarr store behind a URL. What is pickled is the URL alone."""

    def __init__(self, url: str, read_only: bool = True):
        with explained(url):
            super().__init__(_connect(url, PATIENCE, SILENCE), read_only=read_only)
        self.url = url

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.read_only)

    def __str__(self) -> str:
        return redacted(self.url)

    def with_read_only(self, read_only: bool = False) -> RemoteStore:
        """Return the same store, for reading only or not."""
        return type(self)(self.url, read_only)

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        """Return an object, or a part of it; None if it is not there."""
        with explained(self.url):
            return await super().get(key, *arguments, **options)

    async def get_partial_values(self, *arguments: Any, **options: Any) -> Any:
        """Return parts of objects."""
        with explained(self.url):
            return await super().get_partial_values(*arguments, **options)

    async def exists(self, key: str) -> bool:
        """Tell whether an object is there."""
        with explained(self.url):
            return await super().exists(key)

    async def set(self, key: str, value: Any) -> None:
        """Write an object."""
        with explained(self.url):
            await super().set(key, value)

    async def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        with explained(self.url):
            await super().delete(key)

    async def _list(self, prefix: str | None = None) -> AsyncGenerator[Any, None]:
        with explained(self.url):
            async for found in super()._list(prefix):
                yield found

    async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
        """Yield the names below a prefix."""
        with explained(self.url):
            async for name in super().list_dir(prefix):
                yield name

    def stamps(self, keys: Iterable[str]) -> list[tuple[str, int, str]]:
        """Return key, size and entity tag of those objects that are there."""

        def stamp(key: str) -> tuple[str, int, str] | None:
            try:
                found = self.store.head(key)
            except FileNotFoundError:
                return None
            return key, int(found["size"]), str(found["e_tag"] or found["last_modified"])

        with explained(self.url), ThreadPoolExecutor(16) as threads:
            try:
                return [found for found in threads.map(stamp, keys) if found is not None]
            finally:
                threads.shutdown(cancel_futures=True)


def is_url(place: object) -> bool:
    """Tell whether data or results are behind a URL."""
    return "://" in str(place)


def open_remote(url: str, read_only: bool = True) -> RemoteStore | FsspecStore:
    """Return the store at a URL, once its server was found to answer; there need not be anything in it."""
    if _scheme(url) not in WHO:
        return FsspecStore.from_url(url, read_only=read_only)
    _fetch(_first(url), url, ROOT)
    return RemoteStore(url, read_only)


def root_at(url: str) -> dict[str, Any] | None:
    """Return the metadata at the root of the store at a URL, None if there are none."""
    return _parsed(_fetch(_first(url), url, ROOT))


def check_target(url: str, overwrite: bool) -> None:
    """Refuse, before anything is computed, a URL that `upload` would refuse or that cannot be written."""
    client = _target(url)
    _refuse_taken(client, url, overwrite, None)
    with explained(url):
        if _is_unfinished(client):
            return
        client.put(UNFINISHED, b"")
        client.delete(UNFINISHED)


def _not_whole(files: Mapping[str, Path], arrived: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return the files that are not there, or not of their size."""
    return [name for name, path in files.items() if arrived.get(name, ("", -1))[1] != path.stat().st_size]


def upload(folder: Path, url: str, overwrite: bool, progress: Progress = silent) -> None:
    """Put a finished store under a URL, so that what can be opened there is always whole.

    The metadata at the root go first of what was there, and come last of what is new. A run that was killed is taken up
    by the next one: files that have arrived are not sent again. Nothing outside the URL is touched.
    """
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    if ROOT not in files:
        raise InputError(f"{folder}: is not a Zarr store; nothing was uploaded to {url}")
    root = files.pop(ROOT).read_bytes()
    client = _target(url)
    _refuse_taken(client, url, overwrite, root)
    before = _arrays_before(client, url)
    with explained(url):
        client.put(UNFINISHED, json.dumps(before).encode())
        with suppress(FileNotFoundError):  # which S3 does not raise, and others do
            client.delete(ROOT)
        _send_all(client, files, progress)
        arrived = _listing(client)
        for pause in LOST_PAUSES:
            lost = _not_whole(files, arrived)
            if not lost:
                break
            # A server that was away may have lost what it had taken, or not know yet what it has.
            time.sleep(pause)
            _send_all(client, {name: files[name] for name in lost}, silent)
            arrived = _listing(client)
        # Of the arrays that were there, and of nothing else.
        stale = sorted(name for name in set(arrived) - set(files) if name.partition("/")[0] in before)
        if stale:
            client.delete(stale)
        if wrong := _not_whole(files, arrived):
            raise InputError(f"{url}: {len(wrong)} files did not arrive whole, the first is {wrong[0]}; run it again")
        client.put(ROOT, root)
        client.delete(UNFINISHED)


def _arrays_before(client: Client, url: str) -> list[str]:
    """Return the names of the arrays of the result that is being overwritten, also by an upload that was killed."""
    root = _fetch(client, url, ROOT)
    if root is not None:
        return sorted(((_parsed(root) or {}).get("consolidated_metadata") or {}).get("metadata", {}))
    try:
        names = json.loads(_fetch(client, url, UNFINISHED) or b"[]")
    except ValueError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _send_all(client: Client, files: dict[str, Path], progress: Progress) -> None:
    """Send files, a few at a time; those that are there already, as they are, are left."""
    started, there = time.monotonic(), _listing(client)

    def send(name: str) -> None:
        path, size = files[name], files[name].stat().st_size
        if size > PART_BYTES:
            client.put(name, path, chunk_size=PART_BYTES, max_concurrency=2)
            return
        content = path.read_bytes()
        if there.get(name) != (_entity_tag(content), size):
            client.put(name, content, use_multipart=False)

    with ThreadPoolExecutor(SENDERS) as threads:
        waiting = [threads.submit(send, name) for name in files]
        try:
            for done, sent in enumerate(waiting, 1):
                sent.result()
                progress(Step(0, "uploading", done, len(files), time.monotonic() - started))
        finally:
            threads.shutdown(cancel_futures=True)


def _entity_tag(content: bytes) -> str:
    """Return the tag that S3 gives what was sent in one part: its MD5."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _listing(client: Client) -> dict[str, tuple[str, int]]:
    """Return entity tag and size of every object under the URL of a client."""
    return {
        found["path"]: (str(found["e_tag"]), int(found["size"]))
        for batch in client.list(chunk_size=1000)
        for found in batch
        if found["path"]
    }


def _target(url: str) -> Client:
    """Return a client that writes under a URL."""
    if _scheme(url) not in WHO or _scheme(url).startswith("http"):
        raise InputError(f"{url}: results are not written there; give s3://BUCKET/NAME, gs:// or az://, or a path")
    if not url.partition("://")[2].partition("/")[2].strip("/"):
        raise InputError(f"{url}: is a whole bucket; give a name inside it, as {url.rstrip('/')}/NAME")
    _fetch(_first(url), url, ROOT)
    with explained(url):
        return _connect(url, PATIENCE, SILENCE)


def _refuse_taken(client: Client, url: str, overwrite: bool, root: bytes | None) -> None:
    """Refuse to write over what may not be lost; what this program left unfinished, or is the same, may be."""
    there = _fetch(client, url, ROOT)
    if there is None:
        with explained(url):
            if next(iter(client.list(chunk_size=1)), None) is None or _is_unfinished(client):
                return
    elif there == root:
        return
    if not overwrite:
        raise InputError(f"{url}: exists already; choose another name, or have it overwritten")
    if _kind(there) is None:
        raise InputError(f"{url}: was not written by streampca, and will not be overwritten; choose another name")


def _is_unfinished(client: Client) -> bool:
    try:
        client.head(UNFINISHED)
    except FileNotFoundError:
        return False
    return True


def _fetch(client: Client, url: str, name: str) -> bytes | None:
    """Return an object, None if it is not there; a bucket that is not there is an error."""
    with explained(url):
        try:
            return bytes(client.get(name).bytes())
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise _explanation(url, str(error)) from None
            return None


def _parsed(root: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(root or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _kind(root: bytes | None) -> str | None:
    attributes = (_parsed(root) or {}).get("attributes")
    if not isinstance(attributes, dict) or not {"format_version", "kind"} <= set(attributes):
        return None
    return str(attributes["kind"])


def _first(url: str) -> Client:
    """Return a client that soon gives up."""
    if _scheme(url) not in WHO:
        raise InputError(
            f"{redacted(url)}: this kind of URL is not known; give s3://, gs://, az:// or https://, or a path"
        )
    with explained(url):
        return _connect(url, FIRST_PATIENCE, FIRST_SILENCE)


def _connect(url: str, patience: float, silence: float) -> Client:
    """Return an obstore client for what lies under a URL."""
    try:
        from obstore import store as clients
    except ImportError:
        raise InputError(f"{redacted(url)}: reading it needs obstore: pip install 'streampca[s3]'") from None
    scheme = _scheme(url)
    backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 3}
    options: dict[str, Any] = {
        "retry_config": {"max_retries": 100, "retry_timeout": timedelta(seconds=patience), "backoff": backoff},
        # No bound on the whole of a request: a large chunk may come slowly.
        "client_options": {"connect_timeout": timedelta(seconds=5), "read_timeout": timedelta(seconds=silence),
                           "timeout": timedelta(days=1)},
    }  # fmt: skip
    if scheme not in ("s3", "s3a"):
        options["client_options"]["allow_http"] = scheme == "http"
        maker = (clients.HTTPStore if scheme.startswith("http") else clients).from_url
        return _made(url, partial(maker, url, **options))
    config: Any = _aws_settings(url)
    endpoint = config.get("endpoint") or _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    if endpoint and not _is_address(endpoint):
        raise InputError(f"{url}: AWS_ENDPOINT_URL is no address; set it as http://HOST:PORT or https://HOST")
    if endpoint.startswith("http://"):
        options["client_options"]["allow_http"] = True
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise InputError(f"{url}: names no bucket; give s3://BUCKET/NAME")
    return _made(url, partial(clients.S3Store, bucket, prefix=prefix.strip("/") or None, config=config, **options))


def _made(url: str, make: Callable[[], Client]) -> Client:
    """Make a client, or say why a URL cannot be one's."""
    try:
        return make()
    except ValueError as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{redacted(url)}: is no URL of a store ({first}); check it") from None


def _aws_settings(url: str) -> dict[str, Any]:
    """Return what obstore does not take from the environment itself, and refuse a request that nobody signs."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        if not re.fullmatch(r"[!-~]*", _variable(name)):
            raise InputError(f"{url}: {name} has a space, a line break or the like in it; set it again")
    config: dict[str, Any] = {}
    profile = _profile()
    if not _variable("AWS_REGION", "AWS_DEFAULT_REGION") and "region" in profile:
        config["region"] = profile["region"]
    if not _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") and "endpoint_url" in profile:
        config["endpoint"] = profile["endpoint_url"]
    if _is_set("AWS_NO_SIGN_REQUEST") or _is_set("AWS_SKIP_SIGNATURE"):
        return {**config, "skip_signature": True}
    given = [bool(_variable(name)) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    if not any(given):
        names = ("access_key_id", "secret_access_key", "session_token")
        config |= {name: profile[f"aws_{name}"] for name in names if f"aws_{name}" in profile}
        if "access_key_id" not in config and _BY_OTHERS & set(profile):
            raise InputError(
                f"{url}: the AWS profile has no keys of its own; set those that it gives, as by "
                '`eval "$(aws configure export-credentials --format env)"`'
            )
        given = [name in config for name in names[:2]]
    elsewhere = _variable("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    on_instance = not any(given) and not _is_set("AWS_EC2_METADATA_DISABLED")
    if not all(given) and not elsewhere and not on_instance:
        raise _no_keys(url)
    return config


def _profile() -> dict[str, str]:
    """Return the profile that AWS_PROFILE names, from the files that AWS tools keep."""
    name = _variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    found: dict[str, str] = {}
    home = Path("~/.aws").expanduser()
    for variable, usual, section in (
        ("AWS_CONFIG_FILE", home / "config", f"profile {name}" if name not in ("", "default") else "default"),
        ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials", name or "default"),
    ):
        path = _variable(variable) or usual
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            raise InputError(f"{path}: is not a file of AWS profiles; correct it, or set {variable}") from None
        if parser.has_section(section):
            found |= dict(parser[section])
    if name and not found:
        raise InputError(f"AWS_PROFILE: there is no profile {name!r} in {home}; check its name")
    return found


def _variable(*names: str) -> str:
    """Return the first of these that is in the environment."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _is_set(name: str) -> bool:
    return _variable(name).lower() in ("1", "true", "yes", "on")


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()


def _is_address(text: str) -> bool:
    """Tell whether this is the address of a server; obstore panics on others."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.port != 0
        return known and re.fullmatch(r"[\w.:-]+", parts.hostname or "", re.ASCII) is not None
    except ValueError:
        return False


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn the errors of obstore into one line that says what to do."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        raise _explanation(url, str(error)) from None


def _no_keys(url: str) -> InputError:
    return InputError(f"{redacted(url)}: no credentials were given; set {WHO[_scheme(url)]}")


def _explanation(url: str, text: str) -> InputError:
    """Say what an error of obstore means. Of its text, only what cannot hold a secret is passed on."""
    where, who = redacted(url), WHO[_scheme(url)]
    code = "".join(re.findall(r"<Code>(\w+)</Code>", text)[:1])
    status = "".join(re.findall(r"status code: (\d+)", text)[:1])
    server = redacted("".join(re.findall(r"performing \w+ (https?://[^/\s?]+)", text)[:1]))
    if code in _CODES:
        return InputError(f"{where}: {_CODES[code][0]}; {_CODES[code][1]}")
    if "/latest/api/token" in text or "/latest/meta-data" in text or "computeMetadata" in text:
        return _no_keys(url)
    if status in ("301", "307") or "configured region" in text:
        return InputError(f"{where}: the bucket is in another region; set AWS_REGION")
    if status in ("401", "403"):
        return InputError(f"{where}: access was denied; check {who}")
    if status:
        return InputError(f"{where}: {server} answers {status} {code}".rstrip() + "; try again later")
    if server:
        hint = "AWS_ENDPOINT_URL" if who == _AWS else "the URL"
        return InputError(f"{where}: no answer from {server}; check {hint} and the network")
    first = re.sub(r"\?\S*", "", text.partition("\n")[0])
    return InputError(f"{where}: cannot be reached ({first}); check the URL")
