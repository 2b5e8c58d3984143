"""The layout of a mailbox, from which a thread of the pool takes its work."""

MAIL = "state", "kernel", "arguments", "scratch", "scratch_bytes", "pending", "thread"  # of a mailbox, 64 bits each
AWAY, READY, POSTED, CLAIMED, LEAVE = range(5)  # values of the field ``state`` of a mailbox
