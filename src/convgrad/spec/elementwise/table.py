"""The table of all maps."""

from __future__ import annotations

from convgrad.spec.elementwise.coefficients import COEFFICIENTS
from convgrad.spec.elementwise.definition import Map
from convgrad.spec.elementwise.maps import ELEMENTS
from convgrad.spec.elementwise.steps import STEPS

MAPS: dict[str, Map] = {**ELEMENTS, **COEFFICIENTS, **STEPS}
