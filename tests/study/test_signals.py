"""Stops that wait until what was begun is written down."""

from __future__ import annotations

import signal
import threading

import pytest

from swapformer.study.signals import signals_wait


@pytest.mark.parametrize("taken_by_another", [False, True])
def test_a_stop_waits_for_the_end_of_the_block_whichever_thread_takes_it(taken_by_another: bool) -> None:
    done = False
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    assert other.ident is not None
    try:
        with pytest.raises(KeyboardInterrupt), signals_wait():
            signal.pthread_kill(other.ident if taken_by_another else threading.get_ident(), signal.SIGINT)
            done = sum(range(10**5)) > 0
    finally:
        over.set()
        other.join()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
