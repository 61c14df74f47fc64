"""Errors that are a user's to mend: shown as one message, never as a traceback."""

from __future__ import annotations


class GemmlabError(Exception):
    """The message names the file, key or variant, the value, what was expected and the cure."""
