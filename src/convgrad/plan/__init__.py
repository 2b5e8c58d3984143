"""HOW a problem will be computed: machines, recipes, strategies and schedules, all of them values."""
