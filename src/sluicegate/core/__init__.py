"""The core is pure: keys, entries, scripts and transitions, without sockets, threads, await or a clock of its own."""
