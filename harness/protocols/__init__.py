"""Protocols: who runs when. One protocol a file; ``rates`` times by one of them what a machine can do."""
