"""Links from tasks to the page of their queue."""
