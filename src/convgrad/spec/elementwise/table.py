"""The table of all maps."""

from __future__ import annotations

from convgrad.spec.elementwise.angles import ANGLES
from convgrad.spec.elementwise.cells import CELLS
from convgrad.spec.elementwise.coefficients import COEFFICIENTS
from convgrad.spec.elementwise.definition import Map
from convgrad.spec.elementwise.losses import LOSSES
from convgrad.spec.elementwise.maps import ELEMENTS
from convgrad.spec.elementwise.powers import POWERS
from convgrad.spec.elementwise.selections import SELECTIONS
from convgrad.spec.elementwise.steps import STEPS
from convgrad.spec.elementwise.wide import WIDE

MAPS: dict[str, Map] = {
    **ELEMENTS,
    **CELLS,
    **SELECTIONS,
    **POWERS,
    **LOSSES,
    **COEFFICIENTS,
    **STEPS,
    **WIDE,
    **ANGLES,
}
