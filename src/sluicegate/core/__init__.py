"""The pure core: keys, entries, scripts, prepared calls. No socket, no thread, no await, no clock of its own."""
