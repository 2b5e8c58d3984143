"""Plans of problems: the machine, the kernel, the division of the work, and the tables of a compiled driver."""
