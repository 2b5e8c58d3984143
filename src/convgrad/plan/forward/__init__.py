"""Planning forwards and data gradients: every output position gathers what its taps meet. Nothing is computed here."""
