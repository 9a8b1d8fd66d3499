"""Protocols: who runs when. One protocol a file."""
