"""The demo of the web page: real jobs on an embedded Redis, and a pool of workers that fail and hang as configured."""

from sluicegate.web.demo.app import Demo, create_demo
from sluicegate.web.demo.pool import DemoPool, DemoSettings

__all__ = ["Demo", "DemoPool", "DemoSettings", "create_demo"]
