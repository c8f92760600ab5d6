import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringside.sim.calibration import Calibration, CalibrationError, Fit, read
from ringside.sim.parameters import Parameters
from ringside.sim.record import Record, digest

FIT = Fit(
    library="ideal",
    algorithm="ring",
    protocol="auto",
    parameters=Parameters(alpha=1e-6 / 3, beta=4e-11, gamma=0.0, launch=1.5e-5),
    interval={"alpha": (3e-7, 4e-7), "beta": (3.9e-11, 4.1e-11)},
    fixed={"gamma": "told apart from beta by no row: at boundary"},
    band=(0.93, 1.11),
    rows=17,
    median_error=0.021,
    p90_error=0.08,
    worst=("4 ranks, 64 KiB: 8 % over",),
)
CALIBRATION = Calibration(
    cluster="my: cluster",
    topology="star",
    date="2026-11-21",
    sources={"runs/one.jsonl": "sha256:0e15"},
    fingerprint={"cpu": "Zähler & Söhne", "torch": "2.13", "GLOO_SOCKET_IFNAME": "no"},
    fits=(FIT, replace(FIT, algorithm="tree")),
    used=("0123456789ab", "123456789012"),
)
RECORD = Record(
    source="x", cluster="y", library="gloo", collective="all_reduce", num_nodes=1, ranks=2, nbytes=8,
    time_s=1e-3, statistic="mean",
)  # fmt: skip


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "fit.yaml")
    assert read(tmp_path / "fit.yaml") == CALIBRATION
    assert [path.name for path in tmp_path.iterdir()] == ["fit.yaml"]


figures = st.floats(0, 1e6)


@pytest.mark.slow
@given(figures, figures, st.text(max_size=20))
@example(0.0, 0.0, "\x85")
def test_any_figure_and_any_name_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, one: float, other: float, name: str
) -> None:
    path = tmp_path_factory.mktemp("calibration") / "fit.yaml"
    fit = replace(
        FIT,
        parameters=Parameters(alpha=one, beta=other),
        band=(min(one, 1.0), max(other, 1.0)),
        fixed={name: name},
    )
    written = replace(CALIBRATION, cluster=name, fits=(fit,))
    written.write(path)
    assert read(path) == written


def test_no_fits_at_all_survive_a_file(tmp_path: Path) -> None:
    none = replace(CALIBRATION, fits=(), used=(), sources={})
    none.write(tmp_path / "fit.yaml")
    assert read(tmp_path / "fit.yaml") == none


def test_a_fit_is_found_by_exactly_its_way() -> None:
    assert CALIBRATION.fit_for("ideal", "tree", "auto") == replace(FIT, algorithm="tree")
    assert CALIBRATION.fit_for("ideal", "tree", "LL") is None
    assert CALIBRATION.fit_for("gloo", "ring", "auto") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a calibration of version 2"),
        ("just text", "not a calibration of version 2"),
        ("calibration: 3", "not a calibration of version 2"),
        ("cluster: x", "not a calibration of version 2"),
        ("calibration: [", "cannot be read"),
        ("calibration: 1\n1: 2", "cluster"),
        ("calibration: 1\n? [a]\n: b", "cannot be read"),
    ],
)
def test_what_is_no_calibration_is_refused(written: Any, text: str, message: str) -> None:
    path = written(text, "fit.yaml")
    with pytest.raises(CalibrationError, match=message) as refusal:
        read(path)
    assert all(line.startswith(str(path)) for line in str(refusal.value).splitlines())


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "fit.yaml"
    CALIBRATION.write(path)
    text = path.read_text(encoding="utf-8")
    text = text.replace("topology: star\n", "").replace("rows: 17", "rows: many", 1)
    path.write_text(text.replace("beta: 4.0e-11", "beta: fast", 1), encoding="utf-8")
    with pytest.raises(CalibrationError) as refusal:
        read(path)
    lines = str(refusal.value).splitlines()
    assert len(lines) == 3
    for place in ("topology", "fits.0.parameters.beta", "fits.0.rows"):
        assert any(place in line for line in lines)


NONSENSE = [
    ("launch: 1.5e-05", "launch: -1", "fits.0.parameters: launch is -1"),
    ("launch: 1.5e-05", "launch: 1.0e+10", "fits.0.parameters: launch is 1"),
    ("alpha: 3.333333333333333e-07", "alpha: .nan", "fits.0.parameters: alpha is nan"),
    ("beta: 4.0e-11", "beta: .inf", "fits.0.parameters: beta is inf"),
    ("gamma: 0.0", "gamma: -1.0e-12", "fits.0.parameters: gamma is -1e-12"),
    ("gamma: 0.0", "gama: 0.0", "fits.0.parameters.gama: is not known"),
    ("- 0.93", "- .nan", "fits.0: band is nan"),
    ("- 1.11", "- 0.97", "fits.0: band is from 0.93 to 0.97; write ends on both sides of 1"),
    ("- 0.93", "- 1.2", "fits.0: band is from 1.2 to 1.11; write the lower end first"),
    ("- 3.0e-07", "- 5.0e-07", "fits.0: alpha is from 5e-07 to 4e-07"),
    ("median_error: 0.021", "median_error: .nan", "fits.0: median_error is nan"),
    ("algorithm: tree", "algorithm: ring", "ideal/ring/auto is fitted twice"),
]


@pytest.mark.parametrize(
    ("sound", "nonsense", "message"), NONSENSE, ids=[nonsense for _, nonsense, _ in NONSENSE]
)
def test_figures_that_cannot_be_are_refused_with_their_place(
    tmp_path: Path, sound: str, nonsense: str, message: str
) -> None:
    path = tmp_path / "fit.yaml"
    CALIBRATION.write(path)
    text = path.read_text(encoding="utf-8")
    assert sound in text
    path.write_text(text.replace(sound, nonsense, 1), encoding="utf-8")
    with pytest.raises(CalibrationError, match=re.escape(message)):
        read(path)


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for path in (tmp_path / "binary", tmp_path, tmp_path / "missing"):
        with pytest.raises(CalibrationError, match="cannot be read"):
            read(path)


def test_a_digest_tells_records_apart_and_is_the_same_tomorrow() -> None:
    assert digest(RECORD) == digest(replace(RECORD))
    assert digest(RECORD) != digest(replace(RECORD, time_s=1.0000001e-3))
    assert len(digest(RECORD)) == 12
