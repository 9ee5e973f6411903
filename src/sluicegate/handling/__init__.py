"""What a worker decides without I/O: which handler gets a message, in which form, and what its end means."""
