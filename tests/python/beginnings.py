"""An op that tests hold up, and the first lines of test programs with an engine."""

import threading


class Gate:
    """An op that runs until the test calls open()."""

    def __init__(self, engine, **accesses):
        self._open = threading.Event()
        self.begun = threading.Event()
        engine.push(self._wait, name="gate", **accesses)

    def _wait(self):
        self.begun.set()
        assert self._open.wait(30)

    def open(self):
        self._open.set()


START = """
import os, sys, threading, time, windrow
engine = windrow.Engine(workers=2)
x = engine.var("x")
"""
