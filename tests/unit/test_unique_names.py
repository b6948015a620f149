"""What is no plain address is not deleted by its name."""

import pytest

from lakesweep.formats.unique_names import shortlist

NAME = "5a4f3e2d-1c0b-4a99-8877-665544332211.parquet"


@pytest.mark.parametrize("key", [f"./{NAME}", f"../{NAME}", f"t/./{NAME}", f"t/../{NAME}", f"t/{NAME}/.", "t/.."])
def test_a_path_with_a_dot_segment_is_left_out_wherever_it_stands(key):
    found = shortlist({f"s3://b/{key}": 7})
    assert (found.objects, found.recorded) == ((), ())


def test_a_name_that_begins_with_dots_is_an_ordinary_one():
    found = shortlist({f"s3://b/t/..{NAME}": 7, f"s3://b/.t/{NAME}": 7})
    assert len(found.recorded) == 2
