from tests.draining.fixtures import numbers, output, queue, server

__all__ = ["numbers", "output", "queue", "server"]
