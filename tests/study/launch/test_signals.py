"""Stops that wait until what was begun is written down."""

from __future__ import annotations

import signal
import threading

import pytest

from swapformer.study.launch.signals import deferred_signals


@pytest.mark.parametrize("taken_by_another", [False, True])
def test_a_stop_waits_for_the_end_of_the_block_whichever_thread_takes_it(taken_by_another: bool) -> None:
    done = False
    begun, taken = threading.Event(), threading.Event()

    def take() -> None:
        begun.wait()
        if taken_by_another:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        taken.set()

    other = threading.Thread(target=take)
    other.start()  # before the block, so that it does not keep signals waiting
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        begun.set()
        taken.wait()
        if not taken_by_another:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        done = sum(range(10**5)) > 0
    other.join()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
