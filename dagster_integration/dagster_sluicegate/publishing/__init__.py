"""Assets and an IO manager that publish messages, and whose retries publish only what is missing."""
