"""Files of oneDNN's descriptors, as its tests have them."""

from __future__ import annotations

from convgrad.descriptor import Descriptor, read_descriptor


def read_descriptors(text: str) -> list[Descriptor]:
    """Read a file of descriptors: separated by white space, with comments from # to the end of the line.

    >>> [d.batch for d in read_descriptors("# two problems\\nmb1ic3ih8oc4kh3 mb5ic3ih8oc4kh3  # the same")]
    [1, 5]
    """
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    return [read_descriptor(word) for word in words]
