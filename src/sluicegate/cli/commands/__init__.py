"""The commands of `sluicegate`, one module each; `sluicegate.cli.registry` lists them."""
