"""This program packs this package and what it needs into one file for `--py-files` or `addArtifacts`.

    python -m sluicegate.spark.pack out.zip

The file holds `sluicegate` with its Lua scripts, `pyspark_sluicegate`, and the pure-Python packages that they need
(redis-py and tenacity), as they are installed here. Executors bring Python and pyarrow themselves, and pandas for
handlers of frames; the compiled hiredis and orjson are used where executors have them. The same packages make the same
bytes on every machine: names are sorted, times and permissions are fixed, and nothing is compressed, because versions
of zlib differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from sluicegate.errors import ConfigurationError

__all__ = ["main", "pack"]

_PACKAGES = ("sluicegate", "pyspark_sluicegate")
_DEPENDENCIES = ("redis", "tenacity")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_COMPILED = (".so", ".pyd", ".dll", ".dylib")
_MODE = 0o100644 << 16  # a plain file that everybody may read


def pack(path: str | os.PathLike[str], *, dependencies: bool = True) -> Path:
    """Write the file, replacing one that is there, and return its path.

    Args:
        path: of the file; its name must end in `.zip`, by which Spark and Python know what it is.
        dependencies: whether redis-py and tenacity are packed too; leave them out where executors have them.

    Raises:
        ConfigurationError: the name does not end in `.zip`, or a package is not installed here as plain files.
    """
    target = Path(path)
    if target.suffix != ".zip":
        raise ConfigurationError(f"the file's name must end in .zip, not {target.name!r}")
    found = dict(_own_files())
    if dependencies:
        for name in _DEPENDENCIES:
            found |= dict(_files_of(name))
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w") as archive:
            for name in sorted(found):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = _MODE
                entry.create_system = 3  # of Unix, also where this runs on another system
                archive.writestr(entry, found[name].read_bytes())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def main(argv: Sequence[str] | None = None) -> int:
    """Pack as the arguments say, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sluicegate.spark.pack", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("path", type=Path, help="the file to write, such as out.zip")
    parser.add_argument(
        "--without-dependencies", action="store_true", help="leave redis-py and tenacity out: the executors have them"
    )
    given = parser.parse_args(argv)
    try:
        path = pack(given.path, dependencies=not given.without_dependencies)
    except (ConfigurationError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)  # noqa: T201  # a program's own words
        return 2
    data = path.read_bytes()
    print(f"{path} {len(data)} bytes sha256:{hashlib.sha256(data).hexdigest()}")  # noqa: T201  # the result
    return 0


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yield this package and its shim by their names in the file."""
    for package in _PACKAGES:
        spec = find_spec(package)
        folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
        if spec is None or not folder.is_dir():
            raise ConfigurationError(
                f"{package} is not installed here as plain files; install sluicegate where you pack"
            )
        for file in folder.rglob("*"):
            if _is_packed(file.parts) and file.is_file():
                yield f"{package}/{file.relative_to(folder).as_posix()}", file


def _files_of(distribution: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of an installed package, of what it needs, and the metadata that tell its version."""
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise ConfigurationError(f"{distribution} is not installed here; install sluicegate where you pack") from None
    files = [file for file in found.files or () if ".." not in file.parts and _is_packed(file.parts)]
    compiled = next((file for file in files if file.name.endswith(_COMPILED)), None)
    if not files or compiled is not None:
        raise ConfigurationError(
            f"{distribution} {found.version} {'has no plain files' if compiled is None else 'is compiled'} "
            "here, so it cannot be packed for executors; install it there, and pack with --without-dependencies"
        )
    for file in files:
        if not file.parts[0].endswith(".dist-info") or file.name == "METADATA":
            yield file.as_posix(), Path(str(file.locate()))
    for needed in _needs(found):
        yield from _files_of(needed)


def _needs(found: metadata.Distribution) -> Iterator[str]:
    """Yield the packages that a package needs without an extra, as far as they are installed for this Python."""
    for requirement in found.requires or ():
        name, _, marker = requirement.partition(";")
        needed = re.match(r"[\w.-]+", name.strip())
        if needed is not None and "extra" not in marker and (not marker or _is_installed(needed[0])):
            yield needed[0]


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _is_packed(parts: Sequence[str]) -> bool:
    return "__pycache__" not in parts and not parts[-1].endswith((".pyc", ".pyo"))


if __name__ == "__main__":
    sys.exit(main())
