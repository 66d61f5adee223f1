"""What `python -m benchmarks traffic` counts: what reads or writes memory, and the bytes of all but products."""

from __future__ import annotations

import torch

from benchmarks.traffic import BEFORE, Traffic, bounds


def test_operations_count_with_what_they_read_and_write_and_views_do_not() -> None:
    x, y, weight = torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(4, 5)
    with Traffic() as traffic:
        z = (x + y).t()  # 3 × 48 bytes; the view is free
        _ = z.to(torch.bfloat16)  # 48 + 24
        _ = x @ weight  # a product: a launch without bytes
    assert (traffic.launches, traffic.bytes) == (3, 3 * 48 + 48 + 24)


def test_a_row_that_is_chosen_is_all_that_a_gather_moves() -> None:
    table, at = torch.zeros(100, 8), torch.zeros(2, 1, dtype=torch.int64)
    with Traffic() as traffic:
        _ = table.gather(-1, at)
    assert traffic.bytes == 2 * 2 * 4, "two numbers of four bytes, read and written"


def test_a_step_moves_less_than_it_did_in_no_more_launches() -> None:
    found = list(bounds("H100"))
    assert len(found) == 4 * len(BEFORE)
    assert all(figure.met for figure in found if figure.target), "\n".join(figure.line() for figure in found)
