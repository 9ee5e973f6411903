"""The tests of this package share one browser, which ends before other tests run an event loop of their own."""
