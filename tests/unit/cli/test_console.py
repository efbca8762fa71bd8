"""Progress on and off a terminal, and durations in words."""

from __future__ import annotations

import io

import pytest

from vestige.cli.console import Progress, duration, guarded, output, paragraph
from vestige.errors import CheckFailed, Interrupted


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (-1, "0 s")],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_off_a_terminal_progress_is_plain_lines_with_the_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(10, stream=stream, clock=clock, every=10) as progress:
        assert progress.left() is None
        progress.stage("full model\nseed 17")
        for _ in range(4):
            clock.now += 5
            progress.advance()
        progress.say("kept: epoch 1")
        progress.stage("oracle")
        assert progress.left() == 30
    assert stream.getvalue().splitlines() == [
        r"[  0%] full model\nseed 17",
        r"[ 20%] full model\nseed 17, about 40 s left",
        r"[ 40%] full model\nseed 17, about 30 s left",
        "kept: epoch 1",
        "[ 40%] oracle, about 30 s left",
    ]


def test_work_taken_over_from_an_interrupted_run_is_not_taken_for_speed() -> None:
    clock = Clock()
    progress = Progress(100, stream=io.StringIO(), clock=clock)
    clock.now += 20  # start-up
    progress.advance(60)  # what the checkpoint had
    assert progress.left() is None
    clock.now += 10
    progress.advance(5)
    assert progress.left() == 70  # 35 left at 5 in 10 s


def test_progress_never_exceeds_its_total() -> None:
    progress = Progress(2, stream=io.StringIO(), clock=Clock())
    progress.advance(5)
    assert progress.done == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(2, stream=stream) as progress:
        progress.stage("[red]stage")
        progress.advance()
        progress.say("[bold]kept")
    text = stream.getvalue()
    assert "[red]stage" in text
    assert "[bold]kept" in text
    assert "50%" in text


def test_prose_is_one_line_off_a_terminal_and_labels_are_no_markup() -> None:
    stream = io.StringIO()
    paragraph(output(file=stream), "[red]x[/red] :smile: " + "word " * 60)
    assert stream.getvalue().startswith("[red]x[/red] :smile: word")
    assert stream.getvalue().count("\n") == 1


def test_errors_map_to_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def raising(error: BaseException) -> int:
        def work() -> None:
            raise error

        return guarded(work)

    assert raising(CheckFailed("no\nway")) == 1
    assert raising(Interrupted("stopped; epoch 2 was kept")) == 130
    assert raising(KeyboardInterrupt()) == 130
    assert raising(OSError(28, "No space left on device")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == r"error: no\nway"
    assert "epoch 2 was kept" in lines[1]
    assert "a full disk" in lines[3]
    assert guarded(lambda: 0) == 0
    assert guarded(lambda: None) == 0
