"""Problems as values: equal to their copies, in whatever process these are looked up."""

from __future__ import annotations

import copy
import pickle

from convgrad.notation import problem


def test_a_copy_is_equal_and_has_no_hash_of_another_process() -> None:
    """Strings hash otherwise in each process: a hash that is pickled would make two of one problem there."""
    one = problem("BWD_W f32 NXC mb2ic1iw3oc1ow3kw3pw1")
    hash(one)
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert "_hash" in vars(one), "kept, as it is needed again and again"
        assert "_hash" not in vars(copied)
        assert {one, copied} == {one}
        assert copied.output_shape == one.output_shape
