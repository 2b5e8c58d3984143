"""DOING it: engines that execute a problem on canonical arrays."""
