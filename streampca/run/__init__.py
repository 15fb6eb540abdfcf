"""Runs from configuration to result: the driver, engines, job queues, and what a run costs."""
