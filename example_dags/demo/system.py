"""Find Java, which Spark needs and only the system can provide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["OLDEST_JAVA", "NoJavaError", "find_java"]

OLDEST_JAVA = 17


class NoJavaError(RuntimeError):
    """The system has no Java that Spark can use; the message names the package to install."""


def find_java() -> int:
    """Return the major version of the Java that Spark will start.

    Raises:
        NoJavaError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    told = ""
    if java:
        try:
            told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
        except OSError:
            told = ""
    found = re.search(r'version "(\d+)', told)
    if found and int(found[1]) >= OLDEST_JAVA:
        return int(found[1])
    which = f"{'JAVA_HOME names' if home else 'the one here is'} version {found[1]}" if found else "there is none here"
    if home and not found:
        which = f"JAVA_HOME={home} names none"
    raise NoJavaError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and {which}; install it with\n"
        f"  {'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {java_package()}"
    )


def java_package() -> str:
    """Return the Debian package of Java; Debian 13 no longer has Java 17."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.is_file() else ""
    version = re.search(r'^VERSION_ID="?(\d+)', text, re.MULTILINE)
    newer = "ID=debian\n" in text and version is not None and int(version[1]) >= 13
    return "openjdk-21-jre-headless" if newer else "openjdk-17-jre-headless"
