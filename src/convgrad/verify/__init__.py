"""How good an answer is: results against the exact value and the proved bound."""
