"""The command line: `sluicegate COMMAND`. It needs the extra `cli`."""
