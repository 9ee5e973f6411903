"""Options of the JVMs that the tests start."""

from __future__ import annotations

# A test's JVM lives for minutes: the second compiler and a concurrent collector would double its processor time.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
