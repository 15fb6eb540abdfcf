"""Zarr stores behind URLs: S3 and compatible servers, Google, Azure and HTTP through obstore; others through fsspec.

Keys, endpoint and region come from the environment and from the profiles of AWS tools. Failed requests are repeated for
two minutes; errors that do not pass are an InputError with the setting to change. Keys are never in messages, nor sent
to Dask workers, which use their own.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from zarr.storage import FsspecStore, ObjectStore

from streampca.errors import InputError, redacted
from streampca.progress import Progress, Step, silent

Client: TypeAlias = Any  # S3Store, GCSStore, AzureStore or HTTPStore of obstore

# Seconds in which a request is repeated; the first request of a store only checks that the server answers.
PATIENCE, FIRST_PATIENCE = 120.0, 5.0
# Seconds without data after which a connection has failed.
SILENCE, FIRST_SILENCE = 30.0, 15.0
PART_BYTES = 8 << 20  # larger files are sent in parts
SENDERS = 4  # threads
PAUSES = (0, 0, 1, 4)  # seconds before files are sent: all, then those that are missing
ROOT = "zarr.json"
UNFINISHED = ".streampca-unfinished"  # marks an incomplete store

_AWS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=YES for public data"
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for public data"
_AZURE = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for public data"
_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Settings of credentials, for each scheme of obstore.
CREDENTIALS = {
    "s3": _AWS, "s3a": _AWS, "gs": _GOOGLE, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE,
    "http": "the address", "https": "the address",
}  # fmt: skip
# Settings of profiles whose keys only AWS tools can obtain.
_KEYLESS = {"sso_session", "sso_start_url", "role_arn", "credential_process"}
# Error code of S3 -> meaning and hint.
_CODES = {
    "InvalidAccessKeyId": ("the access key is unknown to the server", "check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL"),
    "SignatureDoesNotMatch": ("the secret does not belong to the access key", "check AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": ("the session of these keys has expired", "get new ones and set AWS_SESSION_TOKEN"),
    "InvalidToken": ("the session is unknown to the server", "check AWS_SESSION_TOKEN, or unset it"),
    "RequestTimeTooSkewed": ("the clock of this machine differs from the server's", "set the clock"),
    "NoSuchBucket": ("the bucket does not exist", "check its name, AWS_ENDPOINT_URL and AWS_REGION"),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "set AWS_REGION"),
}


class RemoteStore(ObjectStore[Any]):
    """A Zarr store behind a URL, to read from; only the URL is pickled."""

    def __init__(self, url: str):
        super().__init__(_connect(url, PATIENCE, SILENCE), read_only=True)
        self.url = url

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url,)

    def __str__(self) -> str:
        return redacted(self.url)

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        """Return an object or a part of it; None if it does not exist."""
        with explained(self.url):
            return await super().get(key, *arguments, **options)

    async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
        """Yield the names below a prefix."""
        with explained(self.url):
            async for name in super().list_dir(prefix):
                yield name

    def stamps(self, keys: Iterable[str]) -> list[tuple[str, int, str]]:
        """Return key, size and entity tag of the objects that exist."""

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


def open_remote(url: str) -> RemoteStore | FsspecStore:
    """Return the store at a URL, which may be empty, after a check that the server answers."""
    if _scheme(url) not in CREDENTIALS:
        return FsspecStore.from_url(url, read_only=True)
    root_at(url)
    return RemoteStore(url)


def root_at(url: str) -> dict[str, Any] | None:
    """Return the metadata at the root of a store; None if it has none. A server that does not answer is an error."""
    return _parsed(_fetch(_connect(url, FIRST_PATIENCE, FIRST_SILENCE), url, ROOT))


def check_target(url: str, overwrite: bool) -> None:
    """Raise before anything is computed if `upload` to a URL would fail."""
    client = _target(url)
    _check_free(client, url, overwrite, None)
    with explained(url):
        if _fetch(client, url, UNFINISHED) is None:
            client.put(UNFINISHED, b"")
            client.delete(UNFINISHED)


def upload(folder: Path, url: str, overwrite: bool, progress: Progress = silent) -> None:
    """Upload a finished store to a URL, so that a store that opens is always complete.

    The old root metadata are deleted first, and the new ones are written last. After a kill the next run resumes: files
    that have arrived are not sent again. Nothing outside the URL is touched.
    """
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    if ROOT not in files:
        raise InputError(f"{folder}: is not a Zarr store, and was not uploaded to {url}")
    root = files.pop(ROOT).read_bytes()
    client = _target(url)
    _check_free(client, url, overwrite, root)
    before = _arrays_before(client, url)
    with explained(url):
        client.put(UNFINISHED, json.dumps(before).encode())
        with suppress(FileNotFoundError):  # not raised by S3
            client.delete(ROOT)
        lost = files
        for pause in PAUSES:
            time.sleep(pause)
            _send_all(client, lost, progress)
            arrived = _listing(client)
            # After a failure a server may have lost files, or not list them yet.
            lost = {name: path for name, path in files.items() if path.stat().st_size != arrived.get(name, ("", -1))[1]}
            if not lost:
                break
        # Only files of the arrays of the replaced result.
        stale = sorted(name for name in set(arrived) - set(files) if name.partition("/")[0] in before)
        if stale:
            client.delete(stale)
        if lost:
            raise InputError(f"{url}: {len(lost)} files are incomplete, the first is {min(lost)}; run it again")
        client.put(ROOT, root)
        client.delete(UNFINISHED)


def _arrays_before(client: Client, url: str) -> list[str]:
    """Return the names of the arrays of the result that is replaced, even if an earlier upload was killed."""
    root = _fetch(client, url, ROOT)
    if root is not None:
        return sorted(((_parsed(root) or {}).get("consolidated_metadata") or {}).get("metadata", {}))
    try:
        names = json.loads(_fetch(client, url, UNFINISHED) or b"[]")
    except ValueError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _send_all(client: Client, files: dict[str, Path], progress: Progress) -> None:
    """Send files in parallel; those that have arrived unchanged are skipped."""
    started, arrived = time.monotonic(), _listing(client)

    def send(name: str) -> None:
        path, size = files[name], files[name].stat().st_size
        if size > PART_BYTES:
            client.put(name, path, chunk_size=PART_BYTES, max_concurrency=2)
            return
        content = path.read_bytes()
        if arrived.get(name) != (_entity_tag(content), size):
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
    """Return the entity tag of S3 for an object sent in one part: its MD5."""
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
    if _scheme(url) not in CREDENTIALS or _scheme(url).startswith("http"):
        raise InputError(f"{url}: results cannot be written there; give s3://BUCKET/NAME, gs://, az:// or a path")
    if not url.partition("://")[2].partition("/")[2].strip("/"):
        raise InputError(f"{url}: is a whole bucket; give a name inside it, as {url.rstrip('/')}/NAME")
    root_at(url)
    return _connect(url, PATIENCE, SILENCE)


def _check_free(client: Client, url: str, overwrite: bool, root: bytes | None) -> None:
    """Raise if a URL has data that must not be replaced; unfinished or identical results may be."""
    existing = _fetch(client, url, ROOT)
    if existing is None:
        with explained(url):
            if next(iter(client.list(chunk_size=1)), None) is None or _fetch(client, url, UNFINISHED) is not None:
                return
    elif existing == root:
        return
    if not overwrite:
        raise InputError(f"{url}: exists already; choose another name or add --overwrite")
    attributes = (_parsed(existing) or {}).get("attributes")
    if not isinstance(attributes, dict) or not {"format_version", "kind"} <= set(attributes):
        raise InputError(f"{url}: was not written by streampca and is not overwritten; choose another name")


def _fetch(client: Client, url: str, name: str) -> bytes | None:
    """Return an object, or None if it does not exist; a missing bucket is an error."""
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


def _connect(url: str, patience: float, silence: float) -> Client:
    """Return an obstore client for the objects below a URL, which repeats requests for `patience` seconds."""
    scheme = _scheme(url)
    if scheme not in CREDENTIALS:
        raise InputError(f"{redacted(url)}: unknown kind of URL; give s3://, gs://, az:// or https://, or a path")
    try:
        # Optional: the extra s3.
        from obstore import store as clients
    except ImportError:
        raise InputError(f"{redacted(url)}: reading it needs obstore: pip install 'streampca[s3]'") from None
    backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 3}
    options: dict[str, Any] = {
        "retry_config": {"max_retries": 100, "retry_timeout": timedelta(seconds=patience), "backoff": backoff},
        # No limit on a whole request: a large chunk may take long.
        "client_options": {"connect_timeout": timedelta(seconds=5), "read_timeout": timedelta(seconds=silence),
                           "timeout": timedelta(days=1), "allow_http": scheme == "http"},
    }  # fmt: skip
    try:
        with explained(url):
            if scheme in ("s3", "s3a"):
                return _connect_s3(url, clients.S3Store, options)
            return (clients.HTTPStore if scheme.startswith("http") else clients).from_url(url, **options)
    except InputError:
        raise
    except ValueError as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{redacted(url)}: is not the URL of a store ({first}); check it") from None


def _connect_s3(url: str, client: Any, options: dict[str, Any]) -> Client:
    config = _aws_settings(url)
    endpoint = config.get("endpoint") or _variable(*_AWS_ENDPOINTS)
    if endpoint and not _is_address(endpoint):
        raise InputError(f"{url}: AWS_ENDPOINT_URL is not an address; set it to http://HOST:PORT or https://HOST")
    options["client_options"]["allow_http"] = endpoint.startswith("http://")
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise InputError(f"{url}: has no bucket; give s3://BUCKET/NAME")
    return client(bucket, prefix=prefix.strip("/") or None, config=config, **options)


def _aws_settings(url: str) -> dict[str, Any]:
    """Return the settings that obstore does not take from the environment; raise if requests cannot be signed."""
    for name in (*_AWS_KEYS, "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        if not re.fullmatch(r"[!-~]*", _variable(name)):
            raise InputError(f"{url}: {name} contains a space, a line break or the like; set it again")
    profile = _profile()
    config: dict[str, Any] = {}
    if "region" in profile and not _variable("AWS_REGION", "AWS_DEFAULT_REGION"):
        config["region"] = profile["region"]
    if "endpoint_url" in profile and not _variable(*_AWS_ENDPOINTS):
        config["endpoint"] = profile["endpoint_url"]
    if _is_set("AWS_NO_SIGN_REQUEST") or _is_set("AWS_SKIP_SIGNATURE"):
        return {**config, "skip_signature": True}
    return config | _aws_keys(url, profile)


def _aws_keys(url: str, profile: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a profile if the environment has none; raise if there are none at all."""
    given = [bool(_variable(name)) for name in _AWS_KEYS]
    keys: dict[str, str] = {}
    if not any(given):
        names = ("access_key_id", "secret_access_key", "session_token")
        keys = {name: profile[f"aws_{name}"] for name in names if f"aws_{name}" in profile}
        if "access_key_id" not in keys and _KEYLESS & set(profile):
            raise InputError(
                f"{url}: the AWS profile has no keys of its own; set those that it gives, as by "
                '`eval "$(aws configure export-credentials --format env)"`'
            )
        given = [name in keys for name in names[:2]]
    elsewhere = _variable("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    on_instance = not any(given) and not _is_set("AWS_EC2_METADATA_DISABLED")
    if not all(given) and not elsewhere and not on_instance:
        raise _no_keys(url)
    return keys


def _profile() -> dict[str, str]:
    """Return the profile that AWS_PROFILE names, from the files of AWS tools."""
    name = _variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    profile: dict[str, str] = {}
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
            profile |= dict(parser[section])
    if name and not profile:
        raise InputError(f"AWS_PROFILE: {home} has no profile {name!r}; check its name")
    return profile


def _variable(*names: str) -> str:
    """Return the first of these variables that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _is_set(name: str) -> bool:
    return _variable(name).lower() in ("1", "true", "yes", "on")


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()


def _is_address(text: str) -> bool:
    """Whether this is the address of a server; obstore panics on others."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.port != 0
        return known and re.fullmatch(r"[\w.:-]+", parts.hostname or "", re.ASCII) is not None
    except ValueError:
        return False


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn errors of obstore into one line with a hint."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        raise _explanation(url, str(error)) from None


def _no_keys(url: str) -> InputError:
    return InputError(f"{redacted(url)}: no credentials; set {CREDENTIALS[_scheme(url)]}")


def _explanation(url: str, text: str) -> InputError:
    """Return the error for a text of obstore, of which only parts without secrets are quoted."""
    where, credentials = redacted(url), CREDENTIALS[_scheme(url)]
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
        return InputError(f"{where}: access was denied; check {credentials}")
    if status:
        return InputError(f"{where}: {server} answers {status} {code}".rstrip() + "; try again later")
    if server:
        hint = "AWS_ENDPOINT_URL" if credentials == _AWS else "the URL"
        return InputError(f"{where}: no answer from {server}; check {hint} and the network")
    first = re.sub(r"\?\S*", "", text.partition("\n")[0])
    return InputError(f"{where}: cannot be reached ({first}); check the URL")
