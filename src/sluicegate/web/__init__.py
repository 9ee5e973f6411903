"""The web page of queues, streams and job lists, with FastAPI; it needs the extra `web`."""

from sluicegate.extras import extra_needed

with extra_needed("web", "sluicegate.web"):
    from sluicegate.web.access import Access, TokenAccess
    from sluicegate.web.app import create_app
    from sluicegate.web.server import serve

__all__ = ["Access", "TokenAccess", "create_app", "serve"]
