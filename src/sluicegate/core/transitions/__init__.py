"""Each module holds one transition and bears the name of its Lua script.

A module contains, in this order, the request value, the reply values, `<verb>_call` (which prepares the call),
`<verb>_operation` (the generator that the shells run), the reply decoder and the events. A transition imports the
shared vocabulary of `sluicegate.core` and, where it needs another verb, that verb's module. The vocabulary imports no
transition.
"""
