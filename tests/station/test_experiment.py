"""The experimenter's side of the lab, with a child that says what the test wants it to say."""

import contextlib
import subprocess
import sys

import pytest

from station import experiment
from station.experiment import LabError, LabProcess

ECHO = """
import json, sys
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "die":
        sys.exit(order["status"])
    for news in order["say"]:
        print(json.dumps(news), flush=True)
"""


@pytest.fixture
def lab(run_dir, monkeypatch):
    started = []

    def start(module, folder, **streams):
        started.append((module, folder))
        return subprocess.Popen([sys.executable, "-c", ECHO], **streams)

    monkeypatch.setattr(experiment.process, "start", start)
    lab = LabProcess(run_dir)
    assert started == [("station.virtual_lab", run_dir)]
    yield lab
    with contextlib.suppress(BrokenPipeError):
        lab.child.stdin.close()
    while lab.child.poll() is None and lab.news.get(timeout=60.0) is not None:
        pass
    lab.child.wait(60.0)
    lab.child.stdout.close()


def test_orders_go_as_lines_and_the_awaited_news_comes_back(lab):
    lab.tell("x", say=[{"event": "carried"}, {"event": "released", "t_host": 1.5}, {"event": "touchdown"}])
    assert lab.expect("released", 60.0) == {"event": "released", "t_host": 1.5}
    assert lab.expect("touchdown", 60.0) == {"event": "touchdown"}


def test_an_error_of_the_lab_is_raised_in_its_words(lab):
    lab.tell("x", say=[{"event": "error", "text": "run 7 is still on; finish it first"}, {"event": "running"}])
    with pytest.raises(LabError, match="run 7 is still on"):
        lab.expect("running", 60.0)
    assert lab.expect("running", 60.0) == {"event": "running"}


def test_silence_is_an_error_that_names_what_did_not_come(lab):
    lab.tell("x", say=[{"event": "running"}])
    with pytest.raises(LabError, match="'finished' within 0.05 s"):
        lab.expect("finished", 0.05 if lab.expect("running", 60.0) else 0.0)


def test_a_lab_that_ends_is_told_with_its_status_and_orders_to_it_harm_nothing(lab):
    lab.tell("die", status=3)
    with pytest.raises(LabError, match="status 3"):
        lab.expect("finished", 60.0)
    lab.tell("finish")
    lab.tell("finish")
