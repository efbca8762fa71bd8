"""The page and the tables of footprints: what is said first, what is escaped, what is never shown."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.footprints import ROLES, adjacency, calibrated, checkpoint, model, record, shift

from vestige.cli import run
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint.records import FootprintRecord, FootprintSettings
from vestige.report.footprint.page import overview, render_footprints
from vestige.report.footprint.reader import footprint_files, read_footprints
from vestige.report.footprint.rows import RegimeRow, variant_of
from vestige.report.footprint.sections import Extras
from vestige.report.footprint.texts import document_texts
from vestige.report.sections import Data

EVIL = "<script>alert(1)</script>"
DISAGREEMENT = "published thresholds: partially-localized; calibrated: undetermined. The gap is not larger"


def words(page: str) -> str:
    """The page's text on one line."""
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture(scope="module")
def page() -> str:
    """A page of everything: two classes, an oracle, calibration, adjacency."""
    return render_footprints(
        [
            record(
                checkpoint(f"RMU {EVIL}", calibrated=calibrated("undetermined"), disagreement=DISAGREEMENT),
                checkpoint("GA", {"bio": 6.0, "cyber": 8.0, "near": 7.5, "far": 0.4}, half=2.0),
                checkpoint("retrained", dict.fromkeys(ROLES, 0.0), half=0.0, role="oracle"),
                settings=FootprintSettings(calibrate=True, retained_text="WikiText & more"),
            )
        ]
    )


def test_the_first_section_answers_in_order(page: str) -> None:
    text = words(page)
    places = [
        text.index(word)
        for word in (
            "Compared: 2 unlearned models",
            "still known?",
            "returns?",
            "behaves?",
            "moved?",
            "where?",
        )
    ]
    assert places == sorted(places)
    assert text.index("What was not tested") < text.index("Classes and what they rest on")
    assert "recovery by relearning" in text
    assert "more than 8-bit storage does" in text


def test_both_classes_their_marks_and_their_disagreement(page: str) -> None:
    text = words(page)
    assert "partially-localized (paper thresholds, per-sequence estimator), calibrated: undetermined" in text
    assert "retraining itself is called no-op here" in text
    assert "chip-" not in page[page.index("<body>") :]
    assert DISAGREEMENT in text
    assert "GA, undetermined: the adjacency gap" in text
    assert "covers 0" in text
    assert "paper thresholds, per-sequence estimator" in text


def test_every_value_has_its_interval_floor_and_reason(page: str) -> None:
    text = words(page)
    assert "6.00 ± 0.10" in text
    assert "t-based, 95 %, over 3 subsets of 200 units, seed 17" in text
    assert "no training variance" in text
    assert "two probe seeds, base" in text
    assert "99.7 %, 98.1 %" in text
    assert "+0.30 ± 0.02" in text


def test_names_are_escaped_and_nothing_is_loaded(page: str) -> None:
    assert "<script" not in page
    assert html.escape(EVIL) in page
    assert re.findall(r"(?:https?:)?//[a-z]", page.replace("http://www.w3.org", "")) == []
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_figures_have_text_alternatives(page: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", page, re.S)
    assert len(figures) > 5
    for figure in figures:
        assert re.search(r"<title[^>]*>[^<]+</title><desc[^>]*>[^<]+</desc>", figure)
    assert "not a joint region" in page


def test_adjacent_corpus_statement_and_retained_text(page: str) -> None:
    text = words(page)
    assert "the user states: virology textbooks against pathogen papers" in text
    assert "caution: not above 0" in text
    assert "WikiText & more" in text
    assert "70 % of 40 questions" in text.replace("\u00a0", " ")


def test_the_same_records_give_the_same_page() -> None:
    made = record(checkpoint("small", dict.fromkeys(ROLES, 0.0)))
    assert render_footprints([made]) == render_footprints([made])


def test_what_is_undefined_is_said_in_words() -> None:
    why = "no weight changes: the adapter is a prompt encoder"
    lost = shift(why, why)
    made = record(
        checkpoint(
            "P-tuning",
            dict.fromkeys(ROLES, why),
            changes={
                name: {
                    "fisher_linear": lost,
                    "floor_share": Undefined(undefined=why),
                    "hessian": lost,
                    "perplexity": Undefined(undefined="perplexity was not asked for"),
                    "modules": (),
                    "layers": (),
                    "projections": (),
                    "documents": (),
                }
                for name in ROLES
            },
            calibrated=Undefined(undefined=why),
        ),
        adjacency=Undefined(undefined="no adjacent corpus"),
    )
    text = words(render_footprints([made]))
    assert why in text
    assert "undefined: perplexity was not asked for" in text
    assert "Undefined: no adjacent corpus." in text
    assert "No scatter of forget against adjacent shift" in text
    assert "Not run: no relearning attack" in text
    assert not re.search(r"\b(nan|None|inf)\b", text)


def test_overlapping_and_coinciding_subsets_are_said() -> None:
    made = record(checkpoint("RMU", half={"bio": 0.1, "cyber": 0.1, "near": 0.1, "far": 0.1}))
    corpora = list(made.corpora)
    corpora[0] = corpora[0].model_copy(update={"overlap": 0.5})
    text = words(render_footprints([made.model_copy(update={"corpora": tuple(corpora)})]))
    assert "too short on bio, whose subsets overlap" in text
    assert "intervals too short: subsets overlap" in text
    lone = record(
        checkpoint("RMU", changes={"bio": {"fisher": shift(6.0, "all subsets hold the same text")}})
    )
    assert "no interval: all subsets hold the same text" in words(render_footprints([lone]))


def test_a_flagged_no_op() -> None:
    made = checkpoint("weak", dict.fromkeys(ROLES, 0.2))
    flag = "fluency moved on bio although the footprint did not: log10 perplexity ratio +0.30"
    flagged = made.model_copy(update={"published": made.published.model_copy(update={"flags": (flag,)})})
    assert f"weak, flag: {flag}" in words(render_footprints([record(flagged)]))


def test_recovery_is_drawn_where_there_are_rows() -> None:
    rows = [
        RegimeRow(
            checkpoint="RMU",
            class_name="partially-localized",
            cofi_forget=7.0,
            recovery=0.27,
            before=0.29,
            after=0.57,
        ),
        RegimeRow(
            checkpoint="GA",
            class_name="globally-destructive",
            cofi_forget=4.2,
            recovery=0.0,
            before=0.26,
            after=0.26,
        ),
    ]
    extras = Extras(
        regimes=rows, returns={"RMU": "27 points come back"}, tested=frozenset({"recovery by relearning"})
    )
    text = words(render_footprints([record(checkpoint("RMU", dict.fromkeys(ROLES, 0.0)))], extras=[extras]))
    assert "RMU (partially-localized): shift 7.00 %, recovery +27.0 points" in text
    assert "returns? 27 points come back" in text
    assert "a broken model being repaired" in text
    assert "recovery by relearning" not in text
    assert "Not run" not in text


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parent folder with two footprints: RMU and its noise variant, of another class."""
    parent = tmp_path_factory.mktemp("footprints")
    (parent / "bio.jsonl").write_text('{"id": "d7", "text": "secret <b>words</b> of bio"}\n')
    still = dict.fromkeys(ROLES, 0.0)
    for name, made in (("one", checkpoint("RMU")), ("two", checkpoint("RMU+noise", still))):
        (parent / name).mkdir()
        found = record(made, name=name)
        corpora = list(found.corpora)
        corpora[0] = corpora[0].model_copy(
            update={"path": str(parent / "bio.jsonl"), "sha256": file_hash(parent / "bio.jsonl")}
        )
        found = found.model_copy(update={"corpora": tuple(corpora)})
        (parent / name / "footprint.json").write_text(found.to_json())
    return parent


def file_hash(path: Path) -> str:
    from vestige.data.files import file_sha256

    return file_sha256(path)


def test_a_parent_folder_gives_one_page_with_grid_and_noise_variants(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [path.parent.name for path in footprint_files([folders])] == ["one", "two"]
    assert run(["report", str(folders)]) == 0
    assert capsys.readouterr().out == f"Written: {folders / 'report.html'}\n"
    text = words((folders / "report.html").read_text())
    assert "Base against noise variant: the same class in 0 of 1" in text
    assert "RMU on Llama-3.1-8B: partially-localized" in text
    assert "RMU +noise on Llama-3.1-8B: no-op" in text
    assert "secret" not in text


def test_texts_are_hidden_until_asked_for(folders: Path, tmp_path: Path) -> None:
    one = str(folders / "one")
    assert run(["report", one, "--out", str(tmp_path)]) == 0
    assert "secret" not in (tmp_path / "report.html").read_text()
    assert run(["report", one, "--out", str(tmp_path), "--show-text"]) == 0
    shown = (tmp_path / "report.html").read_text()
    assert "secret &lt;b&gt;words" in shown
    assert "they may be hazardous" in shown


def test_a_changed_file_shows_no_text(folders: Path) -> None:
    (made,) = read_footprints([folders / "one"])
    corpora = tuple(item.model_copy(update={"sha256": "00" * 32}) for item in made.corpora)
    texts = document_texts(made.model_copy(update={"corpora": corpora}))
    assert texts["bio", "d7"] == f"the file has changed: {folders / 'bio.jsonl'}"
    assert texts["far", "d7"] == "not readable: data/far.jsonl"


def test_tables_as_files(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(folders / "one"), str(folders / "two")]
    assert run(["report", *given, "--tables", "csv,tex", "--out", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in told["written"]] == [
        "shifts.csv",
        "classes.csv",
        "modules.csv",
        "documents.csv",
        "footprints.tex",
    ]
    assert told["footprints"][0]["sentence"].startswith("RMU: no verdict, this record was made before")
    shifts = list(csv.DictReader(io.StringIO((tmp_path / "tables" / "shifts.csv").read_text())))
    assert len(shifts) == 8
    assert float(shifts[0]["cofi"]) == 6.0
    assert float(shifts[0]["cofi_half_width"]) == 0.1
    classes = list(csv.DictReader(io.StringIO((tmp_path / "tables" / "classes.csv").read_text())))
    assert [row["class"] for row in classes] == ["partially-localized", "no-op"]
    tex = (tmp_path / "tables" / "footprints.tex").read_text()
    assert tex.count(r"\begin{table}") == 5
    assert "RMU+noise" in tex


def test_every_drawing_of_the_page_becomes_a_file(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folders / "one"), "--out", str(tmp_path), "--figures", "svg", "--html"]) == 0
    capsys.readouterr()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    index = list(csv.DictReader(io.StringIO((tmp_path / "figures" / "index.csv").read_text())))
    assert len(index) == len(re.findall(r"<svg.*?</svg>", page, re.S)) > 3
    assert index[0]["file"] == "classes-1.svg"
    for line in index:
        drawing = ElementTree.parse(tmp_path / "figures" / line["file"]).getroot()
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert line["alternative"] in "".join(drawing.itertext())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "two"], "--out: found nothing"),
        (["one", "--figures", "png"], "--figures: found 'png'"),
        (["one", "--only", "S3"], "--only: found footprints"),
        (["one", "nowhere"], "nowhere: found no footprint.json"),
        (["nowhere", "--show-text"], "--show-text: found no footprint"),
    ],
)
def test_wrong_command_lines(
    folders: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(folders / item) if item in ("one", "two", "nowhere") else item for item in arguments]
    assert run(["report", *given]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_broken_record_is_named_with_its_field(tmp_path: Path) -> None:
    (tmp_path / "footprint.json").write_text('{"format": "vestige-footprint-1", "name": 3}')
    with pytest.raises(InputError, match=r"footprint\.json, 'name'"):
        read_footprints([tmp_path])
    with pytest.raises(InputError, match="no footprint"):
        render_footprints([])


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("RMU+noise", ("RMU", True)),
        ("RMU RNA", ("RMU", True)),
        ("NPO-noised", ("NPO", True)),
        ("noise", ("noise", False)),
        ("denoise", ("denoise", False)),
        ("LoKU+FILA", ("LoKU+FILA", False)),
    ],
)
def test_noise_variants_by_their_labels(label: str, expected: tuple[str, bool]) -> None:
    assert variant_of(label) == expected


def test_runs_of_other_texts_or_estimators_stand_apart() -> None:
    still = checkpoint("RMU", dict.fromkeys(ROLES, 0.0))
    other = FootprintSettings(preset="triage", estimator="batch-mean")
    sections = overview([record(still, name="one"), record(still, name="two", settings=other)])
    (table,) = [block.table for block in sections[0].blocks if isinstance(block, Data)]
    assert [str(row.cells[-1]) for row in table.rows] == [
        "bio, cyber, near, far; per-sequence",
        "bio, cyber, near, far; batch-mean",
    ]


def test_reports_of_footprints_need_no_torch(folders: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from vestige.cli import run;"
        f"code = run(['report', {str(folders / 'two')!r}, '--out', {str(tmp_path)!r}]);"
        "print(code, 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "0 False"


def test_records_read_back_equal(folders: Path) -> None:
    text = (folders / "one" / "footprint.json").read_text()
    assert FootprintRecord.model_validate_json(text).adjacency == adjacency()


def test_a_ratio_that_rounds_to_nothing_has_no_sign() -> None:
    tiny = shift(-0.001, 0.02)
    near = {
        "near": {"perplexity": {"log10_base": 1.0, "log10_after": 1.0, "log10_ratio": tiny, "tokens": (9,)}}
    }
    page = render_footprints([record(checkpoint("RMU", changes=near))])
    assert "0.00 ± 0.02" in words(page)
    assert not re.search(r"[-−+]0\.00(?!\d)", words(page))


def test_hollow_marks_are_explained_where_there_are_any() -> None:
    oracle = checkpoint("retrained", role="oracle")
    assert "Hollow: retrained" not in words(render_footprints([record()]))
    assert "Hollow: retrained" in words(render_footprints([record(checkpoint("RMU"), oracle)]))


def test_a_corpus_named_as_its_role_is_not_named_twice() -> None:
    roles = {"forget": "forget", "near": "adjacent", "generic": "generic"}
    one = checkpoint("RMU", {"forget": 6.0, "near": 5.0, "generic": 0.3}, roles=roles)
    text = words(render_footprints([record(one)]))
    assert "on near (adjacent)" in text
    assert "forget (forget)" not in text
    assert "forget forget" not in text


def test_long_labels_are_cut_everywhere() -> None:
    marked = checkpoint("L" * 300, half=2.0, calibrated=calibrated(), model=model("short"))
    page = render_footprints([record(marked, settings=FootprintSettings(calibrate=True))])
    assert "L" * 60 not in words(page)
    assert "(300 characters)" in words(page)


def test_a_huge_perplexity_ratio_is_a_power_of_ten() -> None:
    huge = {"log10_base": 1.0, "log10_after": 413.0, "log10_ratio": shift(412.0, 1.0), "tokens": (9,)}
    text = words(render_footprints([record(checkpoint("RMU", changes={"near": {"perplexity": huge}}))]))
    assert "perplexity changes most on near, x 10^412" in text


def test_the_bootstrap_reads_no_more_weights_than_there_are() -> None:
    settings = FootprintSettings(calibrate=True)
    for measured, said in ((15_360, "15,360 of 15,360 weights"), (1_000_000, "131,072 of 1,000,000 weights")):
        found = record(checkpoint("RMU", calibrated=calibrated()), settings=settings, parameters=measured)
        assert f"1,000 draws on {said}" in words(render_footprints([found]))
