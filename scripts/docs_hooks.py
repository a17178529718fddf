"""What the documentation takes from the code, and its formulas as MathML; called by mkdocs.

A page has a line ``<!-- made: NAME -->`` where a part is made from the code (`PARTS`), so that no
page tells of a metric, a preset, an option or a file that is not there. Formulas between dollar
signs become MathML when the pages are built: browsers show it without a script.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import streameval
from streameval.cli import main
from streameval.cli.options import commands_of
from streameval.display.evaluation import PARTS as METRIC_PARTS
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import METRICS
from streameval.protocols.presets import DIFFERENCES, EQUIVALENTS, PRESETS, Preset
from streameval.protocols.protocol import Protocol
from streameval.protocols.shipped import PROTOCOLS
from streameval.report.conventions import needs_by_reading

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- made: (\S+) -->$", re.M)
TABLE_ROW = re.compile(r"^\|.*$", re.M)
CODE = re.compile(r"`[^`]+`")  # of a table: GitHub wants its bars escaped, mkdocs shows the escapes
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</(?:span|div)>', re.S
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the parts that are made from the code into a page."""
    whole = MARK.sub(lambda found: PARTS[found[1]](), markdown)
    return TABLE_ROW.sub(
        lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), whole
    )


def on_page_content(content: str, **_: Any) -> str:
    """Turn the formulas of a page into MathML."""
    return FORMULA.sub(
        lambda found: mathml(html.unescape(found[2]), block=found[1] == "div"), content
    )


def mathml(formula: str, *, block: bool) -> str:
    """Return a LaTeX formula as MathML."""
    from latex2mathml.converter import convert

    return str(convert(formula.strip(), display="block" if block else "inline"))


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    heads = list(columns)
    lines = [heads, ["---"] * len(heads), *(list(row) for row in rows)]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def code(texts: Iterable[object]) -> str:
    """Return texts as code, one after the other."""
    return ", ".join(f"`{text}`" for text in texts)


def prose(text: str) -> str:
    """Return plain text as Markdown that shows it as it is."""
    return re.sub(r"([\\\[\]*_`<$])", r"\\\1", text)


def metrics_part() -> str:
    """Return all metrics, as `streameval metrics` lists them."""
    return "\n".join(_metrics())


def _metrics() -> Iterator[str]:
    for part, title in METRIC_PARTS.items():
        yield f"## {title}\n"
        yield f"`--metrics {part}` selects all of these.\n"
        for metric in (one for one in METRICS if one.part == part):
            yield f"### `{metric.name}`{' *' if metric.default else ''}\n"
            said = {
                "formula": f"`{metric.formula}`",
                "over": ", ".join(metric.over),
                "source": metric.source,
            }
            if metric.parameters:
                expected = (f"`{name}` {one.expects}" for name, one in metric.parameters.items())
                said["where"] = "; ".join(expected)
                said["examples"] = code(one.name for one in metric.measures(MetricOptions()))
            if metric.also:
                said["elsewhere"] = code(metric.also)
            said["needs"] = code(metric.needs)
            for reading, more in needs_by_reading(metric).items():
                said["needs"] += f"; under {reading} also {code(more)}"
            yield "".join(f"- {name}: {text}\n" for name, text in said.items())


def presets_part() -> str:
    """Return the presets as a table."""
    return table(
        ("`--as`", "protocol", "options", "reports", "what no option reproduces"),
        (
            (
                f"`{name}`",
                f"`{preset.protocol}`",
                _options(preset),
                code(preset.metrics),
                preset.remark,
            )
            for name, preset in PRESETS.items()
        ),
    )


def _options(preset: Preset) -> str:
    options = [f"{name} {value}" for name, value in preset.options.items()]
    if preset.junk_ids is not None:
        options.append(f"junk ids {', '.join(map(str, preset.junk_ids)) or 'none'}")
    if preset.range is not None:
        options.append(f"range {preset.range}")
    return ", ".join(options)


def equivalents_part() -> str:
    """Return the names of other packages' metrics, and ours, package by package."""
    parts = []
    for tool, names in EQUIVALENTS.items():
        heads, rows = ["there", "here"], [[f"`{name}`", f"`{own}`"] for name, own in names.items()]
        differences = DIFFERENCES.get(tool, {})
        if differences:
            heads.append("difference")
            for row, name in zip(rows, names, strict=True):
                row.append(differences.get(name, ""))
        parts.append(f"### {tool}\n\n{table(heads, rows)}")
    return "\n".join(parts)


def protocols_part() -> str:
    """Return the protocols as a table."""
    return table(
        ("name", "ignored pairs", "who takes part", "CMC counts", "source"),
        (
            (f"`{name}`", _ignored(one), "; ".join(one.selections), one.cmc, PROTOCOLS.source(name))
            for name, one in PROTOCOLS.items()
        ),
    )


def _ignored(protocol: Protocol) -> str:
    if protocol.listed:
        return "; ".join(protocol.ignored())
    junk = f"`gallery.id in {list(protocol.junk_ids)}`"
    rules = (f"`{rule.text}`" for rule in protocol.ignored_by)
    return "; ".join([*([junk] if protocol.junk_ids else []), *rules, *protocol.own_image()])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Give every command and what it is called, groups before their commands."""
    yield from _commands("streameval", main)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for own, one in command.commands.items():
            yield from _commands(f"{name} {own}", one)


def commands_part() -> str:
    """Return the reference of all commands."""
    return "\n".join(_command(name, command) for name, command in commands())


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, max_content_width=100, show_default=True)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## `{name}`\n", f"```text\n{name} {usage}\n```\n"]
    parts.append(prose(inspect.cleandoc(command.help or "")) + "\n")
    if isinstance(command, click.Group):
        rows = (
            (f"`{own}`", prose(one.get_short_help_str(200)))
            for own, one in command.commands.items()
        )
        parts.append(table(("command", ""), rows))
    options = (one for one in command.get_params(context) if isinstance(one, click.Option))
    records = (one.get_help_record(context) for one in options)
    parts.append(table(("option", ""), ((f"`{one[0]}`", prose(one[1])) for one in records if one)))
    examples = commands_of(command.epilog)
    if examples:
        parts.append(f"```bash\n{examples}```\n")
    return "\n".join(parts)


def modules_part() -> str:
    """Return the modules and packages of streameval, from its docstring."""
    listed = re.findall(r"^    (\w+)  +(.*(?:\n {10,}.*)*)", inspect.getdoc(streameval) or "", re.M)
    return table(
        ("", "is"),
        ((f"`streameval/{_place(name)}`", " ".join(what.split())) for name, what in listed),
    )


def _place(name: str) -> str:
    return f"{name}/" if (ROOT / "streameval" / name).is_dir() else f"{name}.py"


PARTS: Mapping[str, Callable[[], str]] = {
    "metrics": metrics_part,
    "presets": presets_part,
    "equivalents": equivalents_part,
    "protocols": protocols_part,
    "commands": commands_part,
    "modules": modules_part,
}
"""The parts that are made from the code, by name."""
