"""Options behind the `?` of a URL: which there are, and the refusal of any other.

An option that nobody knows may be a misspelt password. So its value is never shown, and its name only where it is
plainly no part of a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from urllib.parse import SplitResult

from sluicegate._redis.compat import URL_OPTIONS
from sluicegate.errors import ConfigurationError

__all__ = ["known_options", "refuse_unknown_options"]

_EMBEDDED = frozenset({"fsync", "idle_seconds"})
_NOT_FOR_A_URL = frozenset({"timeout", "retry_on_error"})  # of another kind of pool, and a list of exception classes
_CONNECTION = frozenset(name for name in URL_OPTIONS if not name.startswith("ssl_")) - _NOT_FOR_A_URL | {
    *("username", "password", "password_env", "client_name", "lib_name", "lib_version", "protocol"),
    *("decode_responses", "encoding", "encoding_errors", "socket_read_size", "max_connections"),
}
_TLS = frozenset(name for name in URL_OPTIONS if name.startswith("ssl_")) | {
    *("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_ciphers"),
    *("ssl_check_hostname", "ssl_min_version", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    "ssl_ocsp_expected_cert",
}
_SENTINEL = frozenset({"sentinel_password_env", "sentinel_username"})
_NETWORK_ONLY = frozenset({"socket_keepalive"})
_MEANT = {
    **dict.fromkeys(("auth", "pass", "passwd", "password", "pw", "pwd", "secret", "token"), "password_env"),
    **dict.fromkeys(("login", "name", "user"), "username"),
    **dict.fromkeys(("database", "index"), "db"),
    "timeout": "socket_timeout",
}
_WORD = re.compile(r"[A-Za-z][A-Za-z_]{0,39}")
_SECRETS = frozenset({"password", "auth", "passwd", "pwd"})


def known_options(scheme: str) -> frozenset[str]:
    """Return the options that a URL of this scheme may have."""
    if scheme == "embedded":
        return _EMBEDDED
    known = _CONNECTION | _TLS if scheme.startswith("rediss") else _CONNECTION
    if scheme == "unix":
        return known - _NETWORK_ONLY
    if scheme.endswith("sentinel"):
        known |= _SENTINEL
    return known - {"db"} if "+" in scheme else known  # there it stands in the path, or is 0


def refuse_unknown_options(parts: SplitResult, options: Sequence[tuple[str, str]]) -> None:
    """Refuse a URL with an unknown option.

    Raises:
        ConfigurationError: with the nearest option that there is; never with a value.
    """
    known = known_options(parts.scheme)
    number = next((number for number, (name, _) in enumerate(options, 1) if name not in known), None)
    if number is None:
        return
    name = options[number - 1][0]
    nearest = _nearest(name, known)
    shown = repr(name) if nearest is not None or _is_harmless(number, options) else f"number {number} behind the ?"
    if name in _TLS or name in ("ssl", "tls"):
        advice = (
            f"write rediss{parts.scheme.removeprefix('redis')}:// for TLS" if parts.scheme != "unix" else "leave it"
        )
    elif nearest is not None:
        advice = f"did you mean {nearest}?"
    else:
        advice = f"there are {', '.join(sorted(known))}"
    raise ConfigurationError(f"url has an unknown option, {shown}; {advice}")


def _nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known option that a name resembles; None when it resembles none, or may be more than a name."""
    if not _WORD.fullmatch(name):
        return None
    meant = _MEANT.get(name.lower())
    if meant in known:
        return meant
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    return near[0] if near else None


def _is_harmless(number: int, options: Sequence[tuple[str, str]]) -> bool:
    """Return whether a name cannot be the rest of a password that holds a `?`, an `&` or an `=`."""
    name, value = options[number - 1]
    before = {name.lower() for name, _ in options[: number - 1]}
    return bool(_WORD.fullmatch(name) and value) and not (before & _SECRETS) and not any("@" in v for _, v in options)
