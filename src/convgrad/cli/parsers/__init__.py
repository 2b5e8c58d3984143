"""The parsers of the commands: the arguments of each, in a module that is read when the command is asked for."""

COMMANDS = ("run", "verify", "explain", "probe", "bench", "info")
