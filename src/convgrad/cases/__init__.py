"""Cases to judge: problems, and arrays where they bring some, in the notations in which people keep them."""
