"""The demonstration: what it hears, carries over, takes from the command line; and one whole throw by the command."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from station import config as cfg
from station import demo, judge, process, recorder, result
from station import messages as m
from station.demo import Heard, Options
from station.lab import truth as truths

COV = (0.0,) * 144


def takeover(stage="CONFIRM", t_at=10.0, **fields):
    base = {"pos": (0.1, -0.2, 1.6), "quat": (0.0, 0.0, 0.0, 1.0), "vel": (0.5, 0.3, 1.2), "ang_vel": (0.0,) * 3}
    return m.Takeover(
        t=t_at - 0.2, drone="cf1", stage=stage, t_release=t_at - 0.3, t_at=t_at, cov=COV, **{**base, **fields}
    )


def event(name, t=1.0, text=""):
    return m.Event(t=t, name=name, drone="cf1", text=text)


def image(**fields):
    base = {
        "t": 1.0, "drone": "cf1", "job": 1, "policy": 77, "arch": 1, "halves": bytes(552), "crc": 5,
        "expected": (0.0,) * 4, "tolerance": 0.02, "target_m": 1.2, "success": 0.97, "initial_success": 0.0,
        "initial_sha256": "", "initial_std": (), "curve": (), "wall_s": 0.1, "env_steps": 180_000, "envs": 32,
        "parameters": 276, "compiled_in_flight": False, "sha256": "",
    }  # fmt: skip
    return m.PolicyImage(**{**base, **fields})


# What is heard ------------------------------------------------------------------------------------------------------


def test_the_first_of_each_event_of_the_timeline_counts():
    heard = Heard()
    assert heard.add(event("speculated", 1.0)) and heard.add(event("confirmed", 1.1))
    assert not heard.add(event("speculated", 2.0))
    assert not heard.add(event("armed", 0.5)), "not on the timeline"
    assert heard.events == {"speculated": 1.0, "confirmed": 1.1}


def test_a_feint_is_forgotten():
    heard = Heard()
    for each in (event("speculated", 1.0), event("trained", 1.2), event("cancelled", 1.3), event("speculated", 5.0)):
        heard.add(each)
    assert heard.events == {"speculated": 5.0}


def test_the_last_prediction_before_the_activation_counts():
    heard = Heard()
    first, second, third = takeover("SPECULATE", 10.0), takeover("CONFIRM", 10.1), takeover("CONFIRM", 10.2)
    heard.add(first)
    heard.add(second)
    heard.add(takeover("ABORT", 10.15))
    heard.add(event("activated"))
    heard.add(third)
    assert heard.takeover == second


def test_the_network_that_was_sent_and_its_way_are_kept():
    heard = Heard()
    heard.add(image())
    assert heard.image == image()
    better = image(policy=78)
    heard.add(m.Upload(t=1.0, drone="cf1", image=better, deadline=2.0))
    for state in ("SENT", "READY", "FAILED"):
        heard.add(m.UploadStatus(t=1.0, drone="cf1", policy=78, state=state, packets=22))
    assert heard.image == better and heard.upload.state == "READY"


@pytest.mark.parametrize(("name", "text"), [("mission_done", ""), ("mission_failed", "no release within 20 s")])
def test_a_mission_ends_once_its_end_is_told(name, text):
    heard = Heard()
    assert heard.outcome is None
    heard.add(event(name, text=text))
    assert heard.outcome == text


def test_a_refusal_is_kept():
    heard = Heard()
    assert not heard.refused
    heard.add(event("refused", text="stops below the floor"))
    assert heard.refused


def test_times_count_from_the_release():
    assert demo.since({"speculated": 100.07}, None) == {}
    times = demo.since({"speculated": 100.07, "trained": 100.25}, 100.0)
    assert times == pytest.approx({"release": 0.0, "speculated": 0.07, "trained": 0.25})


# A prediction carried to the activation -----------------------------------------------------------------------------


@pytest.mark.parametrize("dt", [0.0, 0.03, -0.02, 0.25])
def test_a_prediction_is_carried_by_free_fall(dt):
    rate, start = np.array([1.0, -2.0, 3.0]), Rotation.from_euler("xyz", [0.3, -0.4, 1.0])
    pos, vel, gravity = np.array([0.1, -0.2, 1.6]), np.array([0.5, 0.3, 1.2]), np.array([0.0, 0.0, -9.81])
    prediction = takeover(
        t_at=10.0, pos=tuple(pos), vel=tuple(vel), quat=tuple(start.as_quat()), ang_vel=tuple(rate)
    )  # fmt: skip
    at = demo.at(prediction, 10.0 + dt)
    np.testing.assert_allclose(at[0], pos + vel * dt + 0.5 * gravity * dt**2, atol=1e-12)
    np.testing.assert_allclose(at[2], vel + gravity * dt, atol=1e-12)
    np.testing.assert_allclose(at[3], rate)
    turned = start * Rotation.from_rotvec(rate * dt)
    assert (Rotation.from_quat(at[1]).inv() * turned).magnitude() < 1e-9


# The command line over the configuration ----------------------------------------------------------------------------


def options(**fields):
    configs = process.ROOT / "configs"
    base = dict.fromkeys(("loss", "mismatch", "drone", "json", "report", "record"))
    base |= {"runs": 1, "seed": 7, "rate": 1.0, "config": configs / "sim_throw.yaml"}
    return Options(**{**base, "lab": configs / "scenarios" / "throw.yaml", **fields})


def test_without_options_the_files_count():
    station, lab = demo._configs(options())
    assert station == cfg.load(options().config, cfg.StationConfig)
    assert lab == cfg.load(options().lab, cfg.LabConfig)


def test_options_override_the_files():
    station, lab = demo._configs(options(loss=0.3, mismatch=0.0, drone="cf2x_T350", rate=0.5))
    assert (lab.loss, lab.mismatch, lab.drone, lab.rate) == (0.3, 0.0, "cf2x_T350", 0.5)
    assert (station.drones[0].type, station.rate) == ("cf2x_T350", 0.5)


def test_an_unknown_drone_is_refused_with_those_that_are_known():
    with pytest.raises(cfg.ConfigError, match=r"cf99.*cf21B_500"):
        demo._configs(options(drone="cf99"))


# A whole throw ------------------------------------------------------------------------------------------------------


def fly(folder, ports, seed):
    """The command on ports of its own; its result as read from the file, and what it ended with."""
    for name, source in (("station", "sim_throw.yaml"), ("lab", "scenarios/throw.yaml")):
        data = yaml.safe_load((process.ROOT / "configs" / source).read_text())
        if name == "station":
            data["source"]["command_port"], data["dongles"][0]["air_port"] = ports
        else:
            data["command_port"], data["air_port"] = ports
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "station.cli", "demo", "throw", "--seed", str(seed)]
    command += [
        "--json",
        str(folder / "t.json"),
        "--report",
        str(folder / "t.html"),
        "--record",
        str(folder / "t.mcap"),
    ]
    command += ["--config", str(folder / "station.yaml"), "--lab", str(folder / "lab.yaml")]
    done = subprocess.run(command, cwd=process.ROOT, capture_output=True, text=True, check=False, timeout=290)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads((folder / "t.json").read_text()), done


@pytest.fixture(scope="module")
def flown(tmp_path_factory, free_ports):
    """One throw; another seed only when the machine was too busy to keep the plant in step with the host."""
    for seed in (7, 8, 9):
        folder = tmp_path_factory.mktemp(f"throw-{seed}")
        outcome, done = fly(folder, free_ports(2), seed)
        if "lagged" not in outcome["runs"][0]["reason"]:
            break
    return folder, seed, outcome, done


KEYS = {
    "": "mission seed rate drone loss mismatch thrown caught refused runs",
    "run": "seed caught refused reason budgets_ok plant_lag_max_s events_s train upload prediction_error truth",
    "events_s": "release speculated confirmed predicted trained uploaded committed activated recovered landed",
    "train": "wall_s env_steps envs parameters compiled_in_flight initial_sha256 initial_success success",
    "upload": "wall_s packets resent crc32",
    "prediction_error": "pos_m vel_mps att_deg rate_rps",
    "truth": "file min_height_m final_speed_mps final_tilt_deg",
}


def test_the_file_has_exactly_the_names_that_were_promised(flown):
    _, seed, outcome, _ = flown
    (run,) = outcome["runs"]
    for name, keys in KEYS.items():
        found = {"": outcome, "run": run}.get(name) or run[name]
        assert set(found) == set(keys.split()), name
    assert (outcome["mission"], outcome["seed"], outcome["rate"], outcome["drone"]) == ("throw", seed, 1.0, "cf21B_500")
    assert (outcome["loss"], outcome["mismatch"], outcome["thrown"], outcome["refused"]) == (0.02, 0.05, 1, 0)
    assert run["seed"] == seed and outcome["caught"] == int(run["caught"])


def test_the_exit_status_is_the_verdict(flown):
    folder, _, outcome, done = flown
    assert done.returncode == (0 if outcome["caught"] == outcome["thrown"] == 1 else 1)
    assert result.verdict(result.read(folder / "t.json")).status == done.returncode
    assert done.stderr == ""
    for name in ("speculated", "activated", "caught"):
        assert name in done.stdout


def test_a_throw_in_time_is_caught(flown):
    """Late stages are the machine's fault and cost catches; all else is ours."""
    (run,) = flown[2]["runs"]
    if run["budgets_ok"] and run["plant_lag_max_s"] <= judge.MAX_LAG_S:
        assert run["caught"], run["reason"]
        assert run["reason"] == ""


def test_events_come_in_their_order(flown):
    (run,) = flown[2]["runs"]
    times = run["events_s"]
    assert times["release"] == 0.0
    for before, after in (
        ("release", "speculated"),
        ("speculated", "confirmed"),
        ("speculated", "trained"),
        ("confirmed", "activated"),
        ("trained", "uploaded"),
        ("uploaded", "committed"),
        ("committed", "activated"),
    ):
        assert times[before] <= times[after], (before, after)
    if run["caught"]:
        assert times["activated"] < times["recovered"] < times["landed"]
    late = [name for name, ms in result.BUDGETS_MS.items() if 1e3 * times[name] > ms]
    assert run["budgets_ok"] == (not late)


def test_the_network_was_trained_from_scratch_in_flight(flown):
    train = flown[2]["runs"][0]["train"]
    assert (train["env_steps"], train["envs"], train["parameters"]) == (180_000, 32, 276)
    assert train["compiled_in_flight"] is False
    assert train["initial_success"] <= 0.05 < 0.5 < train["success"] <= 1.0
    assert len(train["initial_sha256"]) == 64 and int(train["initial_sha256"], 16) > 0
    assert train["wall_s"] > 0.0


def test_the_truth_is_an_archive_that_the_verdict_follows_from(flown):
    folder, _, outcome, _ = flown
    (run,) = outcome["runs"]
    assert run["truth"]["file"] == Path(run["truth"]["file"]).name
    with np.load(folder / run["truth"]["file"]) as file:
        arrays = {name: file[name] for name in ("t_plant", "t_host", "pos", "quat", "vel", "ang_vel", "rotor_rpm")}
    rows = len(arrays["t_plant"])
    widths = {"t_plant": (), "t_host": (), "pos": (3,), "quat": (4,), "vel": (3,), "ang_vel": (3,), "rotor_rpm": (4,)}
    for name, width in widths.items():
        assert arrays[name].shape == (rows, *width) and np.isfinite(arrays[name]).all(), name
    steps = np.diff(arrays["t_plant"])
    assert (steps > 0.0).all() and steps.max() <= 1 / 200 + 1e-9
    np.testing.assert_allclose(np.linalg.norm(arrays["quat"], axis=1), 1.0, atol=1e-6)
    assert arrays["t_plant"][0] < -0.5 and np.abs(arrays["t_plant"]).min() < 1e-3
    # Zero is the release: in the hand before, falling with standing rotors after it, and turning once a policy flies.
    still = arrays["t_plant"] < 0.1
    assert not arrays["rotor_rpm"][still].any()
    fall = (arrays["t_plant"] > 0.01) & (arrays["t_plant"] < 0.1)
    assert -11.5 < np.polyfit(arrays["t_plant"][fall], arrays["vel"][fall, 2], 1)[0] < -9.5, "gravity and some drag"
    assert arrays["rotor_rpm"].max() > 5000.0
    truth = truths.load(folder / run["truth"]["file"])
    verdict = judge.judge(truth)
    assert (verdict.caught, pytest.approx(verdict.min_height_m)) == (run["caught"], run["truth"]["min_height_m"])
    assert truth.scalars["activation_s"] == pytest.approx(run["events_s"]["activated"], abs=0.05)
    assert truth.scalars["seed"] == run["seed"]


def test_the_prediction_was_close(flown):
    (run,) = flown[2]["runs"]
    if not run["budgets_ok"]:
        pytest.skip("a late activation is far from the moment that was predicted for")
    error = run["prediction_error"]
    assert 0.0 <= error["pos_m"] < 0.1 and 0.0 <= error["vel_mps"] < 0.5
    assert 0.0 <= error["att_deg"] < 15.0 and 0.0 <= error["rate_rps"] < 2.5


def test_the_record_holds_every_message_of_the_throw(flown):
    folder, _, outcome, _ = flown
    (run,) = outcome["runs"]
    messages = [message for _, message in recorder.read(folder / "t.mcap")]
    kinds = {type(message) for message in messages}
    assert kinds >= {
        m.Estimate,
        m.Takeover,
        m.TrainRequest,
        m.PolicyImage,
        m.Command,
        m.Upload,
        m.UploadStatus,
        m.Event,
    }
    sent = [message.image for message in messages if isinstance(message, m.Upload)][-1]  # a feint may have had its own
    assert f"{sent.crc:08x}" == run["upload"]["crc32"]
    assert sent.initial_sha256 == run["train"]["initial_sha256"]
    assert hashlib.sha256(sent.halves).hexdigest() == sent.sha256
    ready = [message for message in messages if isinstance(message, m.UploadStatus) and message.state == "READY"][-1]
    assert (ready.policy, ready.packets, ready.resent) == (
        sent.policy,
        run["upload"]["packets"],
        run["upload"]["resent"],
    )
    assert ready.packets - ready.resent == 22
    assert {"config.json", "versions.json"} <= set(recorder.attachments(folder / "t.mcap"))
    names = [message.name for message in messages if isinstance(message, m.Command)]
    assert names.index("window") < names.index("released") < names.index("activate")


def test_the_report_is_one_page_of_its_own(flown):
    text = (flown[0] / "t.html").read_text()
    assert text.lstrip().lower().startswith("<!doctype html") and "</html>" in text
    assert "plotly" in text.lower() and len(text) > 100_000
    assert 'src="http' not in text, "it opens without a network"


def test_nothing_is_left_behind(flown):
    folder = flown[0]
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".json", ".mcap", ".npz", ".yaml", ".yaml"]
