"""The protocol ``rounds``: two arms, loaded anew every round by fresh processes, one a rank.

``model`` and ``file`` are what stands on disk; ``conductor`` starts and watches the processes of a round, ``worker`` is
such a process, ``messages`` is what they say to each other, ``measure`` is what a rank does in a round.
"""
