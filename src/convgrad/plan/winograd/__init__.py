"""Plans of Winograd, for all passes."""
