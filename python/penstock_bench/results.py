# SPDX-License-Identifier: Apache-2.0
"""What the functions of this package return: the program's records, as values, as text, and as HTML for a notebook."""
import ast
import html
import json
import math
import pathlib
import re
import typing


MARGIN_PERCENT = 1  # the smallest gain that matters


class Estimate(typing.NamedTuple):
    """A figure and its interval: of 95 %, or from the lowest to the highest block if there are fewer than five (`ends`)."""

    value: float
    low: float
    high: float
    ends: str = "95 % interval"

    def __str__(self):
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


class Tried(typing.NamedTuple):
    """A change that isolate() tried beside the present setting, in blocks that did not choose it."""

    change: dict  # arguments, settings or environment variables: {"num_workers": 4}
    text: str  # the same in words
    gain_percent: Estimate  # of the rate
    holds: bool  # the whole 95 % interval of the gain is above the margin: the change may be made


class Cause(typing.NamedTuple):
    """Why input costs something."""

    kind: str  # "stage", "edges", "in_turn", ...: `answer` in docs/results-schema.md lists all
    where: str  # the stage, or the part of the loop
    share_percent: float  # of what input adds to a step


class Candidate(typing.NamedTuple):
    """A change to try next."""

    change: dict  # arguments, settings or environment variables: {"num_workers": 4}; empty: work on code, data or machines
    present: dict  # their present values; None: not known
    text: str
    gain_percent: Estimate  # of the rate
    basis: str  # "predicted", "at_most" (a bound), "measured", or "confirmed": surely a gain, in blocks that did not choose it


class RuledOut(typing.NamedTuple):
    """What cannot help."""

    kind: str  # "cost_part" and "setting": `figure`, in percent, is at most `limit`; "stage": its rate is at least `limit`
    name: str
    figure: Estimate
    limit: float


def estimate_of(record):
    if not record:
        return None
    value, low, high = (record[name] for name in ("value", "low", "high"))  # null: not bounded
    return Estimate(math.nan if value is None else value, -math.inf if low is None else low, math.inf if high is None else high, record["ends"])


def value_of(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class Record:
    """A record of the program. `str` of it is what the program prints."""

    def __init__(self, record, text=""):
        self.record, self.text = record, text

    def to_json(self) -> str:
        """The record: docs/results-schema.md describes it."""
        return json.dumps(self.record, indent=1)

    def __str__(self):
        return self.text


class Isolation(Record):
    """What isolate() found. `str` of it is the whole answer as text; a notebook shows its first part."""

    def __init__(self, record, text, page, interrupted=False):
        super().__init__(record, text)
        self.page = page
        self.interrupted = interrupted  # by Ctrl-C: it has what was measured until then

    @property
    def verdict(self) -> list:
        """Sentences; the first one is the answer."""
        return self.record["verdict"]

    @property
    def decision(self) -> str:
        """ "slower": input costs something; "equal within the margin": it does not; "undecided": the data cannot tell; "faster": with the
        loader steps are shorter than without, which a disturbed machine explains."""
        return self.record["cost"]["verdict"]

    @property
    def cost_percent(self) -> Estimate:
        """The share of the device's time that input costs."""
        return estimate_of(self.record["cost"]["percent"])

    @property
    def samples_per_s(self) -> Estimate:
        """What is trained with this loader."""
        cost = self.record["cost"]
        return estimate_of(cost["coupled_img_per_s"] if "coupled_img_per_s" in cost else cost["coupled_rate"])

    @property
    def unit(self) -> str:
        return self.record.get("unit", "img")

    @property
    def stages(self) -> list:
        """Dictionaries, from the source to the device; `bottleneck` is the index of one of them."""
        return self.record["stages"]

    @property
    def bottleneck(self) -> typing.Optional[str]:
        """The name of the stage that limits the rate; None: no stage does, or input costs nothing."""
        index = self.record["bottleneck"]
        return None if index is None else self.stages[index]["name"]

    @property
    def cause(self) -> Cause:
        return Cause(**self.record["answer"]["cause"])

    @property
    def candidates(self) -> list:
        """What to try next: values of Candidate, the most promising first, bounds last."""
        def values(settings, key):
            return {each["name"]: None if each[key] is None else value_of(each[key]) for each in settings}
        return [Candidate(values(each["settings"], "value"), values(each["settings"], "now"), each["text"],
                          estimate_of(each["gain_percent"]), each["basis"]) for each in self.record["answer"]["candidates"]]

    @property
    def ruled_out(self) -> list:
        """Values of RuledOut."""
        return [RuledOut(**{**each, "figure": estimate_of(each["figure"])}) for each in self.record["answer"]["ruled_out"]]

    @property
    def next(self) -> str:
        """ "stop", "measure_again", "try_setting" or "change_code"."""
        return self.record["answer"]["next"]

    @property
    def done(self) -> bool:
        """There is a verdict, and no candidate whose gain may exceed the margin."""
        return self.record["answer"]["done"]

    @property
    def recommendations(self) -> list:
        """Sentences, the most promising first."""
        return self.record["cures"]

    @property
    def tried(self) -> typing.Optional[Tried]:
        """With vary or verify=True: the best change, measured again; None: none was worth a trial, or there was no time."""
        found = self.record["verification"]
        if found is None:
            return None
        now, achieved = self.samples_per_s.value, estimate_of(found.get("achieved_img_per_s") or found.get("achieved_rate"))
        value, low, high = (100 * (rate / now - 1) for rate in achieved[:3])
        gain = Estimate(value, low, high, achieved.ends)
        parts = [part.partition("=") for part in found["change"].split(", ")]
        change = {name: value_of(value) for name, equals, value in parts if equals}
        return Tried(change, found["change"], gain, gain.ends == Estimate._field_defaults["ends"] and gain.low > MARGIN_PERCENT)

    @property
    def doubts(self) -> list:
        """Sentences: what could make the figures wrong."""
        return self.record["doubts"]

    def of_runs(self):
        return self.record["sweep"]

    def save(self, folder):
        """Writes isolation.json, results.json and report.html to a folder, and returns its path."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "isolation.json").write_text(self.to_json() + "\n", encoding="utf-8")
        (folder / "results.json").write_text(json.dumps(self.of_runs()) + "\n", encoding="utf-8")
        (folder / "report.html").write_text(self.page, encoding="utf-8")
        return folder

    def __repr__(self):
        return f"<Isolation: {self.verdict[0]}>" if self.verdict else "<Isolation>"

    def _repr_html_(self):
        return first_part(self.page, self.doubts)


class Run(Record):
    """What run() measured."""

    def __init__(self, record, notes=()):
        rate = record.get("samples_per_s") or record.get("img_per_s") or record.get("rate")
        super().__init__(record, f"{rate:.1f} {record.get('unit', 'img')}/s")
        self.samples_per_s, self.notes = rate, [*notes, *record.get("notes", [])]

    @property
    def unit(self) -> str:
        return self.record.get("unit", "img")

    def of_runs(self):
        return self.record

    def __repr__(self):
        return f"<Run: {self.text}>"


class Comparison(Record):
    """What compare() found. `str` of it is a table."""

    @property
    def verdict(self) -> str:
        """ "none", "regression", "improvement", or "undecided": too few runs, or results that cannot be compared."""
        code, rows = self.record["exit_code"], self.record["rows"]
        if code:
            return "regression" if code == 1 else "undecided"
        return "improvement" if any(row["verdict"] == "faster" for row in rows) else "none"

    def __repr__(self):
        return f"<Comparison: {self.verdict}>"


class Examination(Record):
    """What doctor() found."""

    def __repr__(self):
        return "<Examination>"


# ---- HTML for a notebook ----------------------------------------------------------

# Colours are those of the notebook around it, which may be dark when the screen's scheme is light; so none is fixed.
STYLE = """.penstock{font:15px/1.5 system-ui,sans-serif;max-width:56rem;color:inherit}
.penstock .lead{font-size:1.25em;font-weight:600;line-height:1.35;margin:.2em 0 .6em;padding-left:.7em;border-left:.25em solid #8b959e}
.penstock .lead.bad{border-color:#d0603a}.penstock .lead.good{border-color:#2f9a75}
.penstock ul{padding-left:1.3em;margin:.3em 0 .8em}.penstock li{margin:.2em 0}
.penstock p{margin:.3em 0}.penstock .soft{opacity:.75;font-size:.9em}
.penstock .tiles{display:flex;flex-wrap:wrap;gap:.5em;margin:.8em 0}
.penstock .tiles div{background:rgba(128,128,128,.14);border-radius:.4em;padding:.45em .8em}
.penstock .tiles span{display:block;opacity:.75;font-size:.85em}.penstock .tiles b{font-variant-numeric:tabular-nums}
.penstock .narrow{display:none}.penstock figure{margin:.8em 0;overflow-x:auto}
.penstock svg{max-width:100%;height:auto;display:block}
.penstock svg text{font:12px system-ui,sans-serif;fill:currentColor}.penstock svg .small{font-size:11px}
.penstock svg .strong{font-weight:600}.penstock svg .soft{fill:currentColor;opacity:.75}
.penstock svg .shade{fill:rgba(128,128,128,.14)}.penstock svg .frame{fill:none;stroke:#8b959e}
.penstock svg .narrow-place{fill:none;stroke:#d0603a;stroke-width:2.5}.penstock svg .demand-text{fill:#d0603a}
.penstock svg .starvation{fill:#d0603a}.penstock svg .device{fill:#4b86c6}.penstock svg .gain{fill:#2f9a75}
.penstock svg .transfer{fill:#dba32c}.penstock svg .residual{fill:#8b959e}"""


def first_part(page, doubts):
    """The beginning of a page: the answer, what would help, the pipeline, the figures; and the doubts."""
    body = page.partition("<body>")[2]
    end = re.search(r"<h2|<details|<div class=\"warnings\"|<table|<div class=\"scroll\"|</body>", body)
    begin = re.sub(r"<h1>.*?</h1>", "", body[:end.start()] if end else "", flags=re.S)
    parts = [f'<div class="penstock"><style>{STYLE}</style>', begin]
    if doubts:
        parts.append(f"<p>Doubts:</p><ul>{''.join(f'<li>{html.escape(each)}</li>' for each in doubts)}</ul>")
    return "\n".join([*parts, "</div>"])
