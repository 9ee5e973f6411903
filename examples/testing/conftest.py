pytest_plugins = ["sluicegate.testing"]
