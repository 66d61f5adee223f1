"""Stops that wait until what was begun is written down."""

from __future__ import annotations

import signal
import threading

import pytest

from swapformer.study.launch.signals import deferred_signals, sigterm_raises
from swapformer.training.signals import SigtermReceived, stop_on_signals


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stop_that_was_raised_where_nobody_sees_it_still_stops_the_training() -> None:
    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with sigterm_raises():
        Finalised()  # Python prints what a finaliser raises, and goes on
        with stop_on_signals() as stop:
            assert stop.requested == "SIGTERM"
    with pytest.raises(SigtermReceived), sigterm_raises():
        signal.raise_signal(signal.SIGTERM)
    with sigterm_raises(), stop_on_signals() as stop:
        assert stop.requested is None
