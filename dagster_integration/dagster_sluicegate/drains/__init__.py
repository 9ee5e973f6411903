"""Assets, ops and jobs that claim messages, work on them, and ack them after the result is stored."""
