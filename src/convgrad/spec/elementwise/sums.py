"""The order of sums of f32 elements, or products of two, per channel, in f64; and a slow execution with the same bits.

Both factors of a product are f32, so the product is exact in f64. The order depends only on the numbers of images and
positions, so all memory formats have the same bits:

- Positions of a channel are cut into **sections** of 1024. If images are combined and have at most 512 positions, the
  positions of 1024 // positions consecutive images form one section.
- In a section, position p of an image, counted from the begin of the section, is added to **chain** p mod 16. Each
  chain begins with +0, and takes the images of the section one after the other.
- The 16 chains are added in halves: chain j to chain j + 8, then 4, 2 and 1.
- The 16-ary tree of `numerics.md` adds the sections, in the order of images, then positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convgrad.array_types import Array
from convgrad.spec.chains import tree
from convgrad.spec.order import tree_height

SECTION = 1024  # positions
CHAINS = 16


@dataclass(frozen=True)
class Sections:
    """The sections of a channel: ``group`` images of each section, ``groups`` of images, ``sections`` of an image."""

    group: int
    groups: int
    sections: int

    @property
    def count(self) -> int:
        """The number of all sections."""
        return self.groups * self.sections


def sections_of(images: int, positions: int, combined: bool = True) -> Sections:
    """Return the sections of a channel. If images are not ``combined``, each has a sum of its own."""
    group = max(1, SECTION // max(1, positions)) if combined else 1
    return Sections(group, -(-images // group), -(-positions // SECTION))


def height(images: int, positions: int, combined: bool = True) -> int:
    """Return the maximum number of roundings between a term and its sum."""
    sections = sections_of(images, positions, combined)
    chain = -(-min(positions, SECTION) // CHAINS) * min(sections.group, images)
    return chain + CHAINS.bit_length() - 1 + tree_height(sections.count if combined else sections.sections)


def totals(sums: Array) -> Array:
    """Return the totals of sums (..., rows, width) over the rows, by the 16-ary tree."""
    with np.errstate(all="ignore"):
        return tree([sums[..., row, :] for row in range(sums.shape[-2])])


def add_rows(sums: Array, index: Array, rows: Array) -> None:
    """Add f32 rows (matrices, count, width) to sums (matrices, places, width) at the places of an index, in its order.

    A row whose place is outside of the sums is not added. Every NaN becomes the canonical one.
    """
    inside = (index >= 0) & (index < sums.shape[1])
    places, totals = index[inside], sums.swapaxes(0, 1)
    with np.errstate(all="ignore"):
        np.add.at(totals, places, rows.swapaxes(0, 1)[inside])
    changed = totals[places]
    totals[places] = np.where(np.isnan(changed), np.float32(np.nan), changed)


def section_sums(a: Array, b: Array | None, sections: Sections) -> Array:
    """Return the f64 sums (sections, channels) of a * b, or of a, for arrays (images, channels, positions) of f32."""
    with np.errstate(all="ignore"):
        terms = a.astype(np.float64) if b is None else a.astype(np.float64) * b
        images, channels, _ = a.shape
        sums = np.zeros((sections.groups, sections.sections, channels))
        for group in range(sections.groups):
            for section in range(sections.sections):
                chains = np.zeros((channels, CHAINS))
                for image in range(group * sections.group, min(images, (group + 1) * sections.group)):
                    row = terms[image, :, section * SECTION : (section + 1) * SECTION]
                    padded = np.pad(row, ((0, 0), (0, -row.shape[1] % CHAINS)))
                    for first in range(0, padded.shape[1], CHAINS):
                        chains = chains + padded[:, first : first + CHAINS]
                while chains.shape[1] > 1:
                    half = chains.shape[1] // 2
                    chains = chains[:, :half] + chains[:, half:]
                sums[group, section] = chains[:, 0]
        return sums.reshape(sections.count, channels)
