"""The commands ``streameval audit`` and ``streameval convert``: data before an evaluation."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import inputs
from streameval.cli.options import FILE, SIDES, URI, bundle, check_effect, command
from streameval.cli.output import print_answer, print_lines

FIELDS = ("shape", "dtype", "chunks", "blocks", "kept")


@command(
    "query gallery QUERY_LABELS GALLERY_LABELS fill_missing metric protocol junk_ids self_match "
    "budget json",
    "audit --query query.npy --gallery gallery.npy \\\n"
    "    --query-labels query.csv --gallery-labels gallery.csv",
    "audit pytorch_result.mat --json",
)
@bundle
def audit(**given: Any) -> None:
    """Report likely mistakes in features and labels.

    Run it before an evaluation. It takes the same inputs as evaluate; labels alone are enough.
    Findings do not change the exit status.
    """
    from streameval.arrays.identity import unchanging
    from streameval.audit import audit_features, audit_labels
    from streameval.errors import BudgetError
    from streameval.protocols.pairs import find_pairs
    from streameval.report.inputs import audit_blocks
    from streameval.request import Terms
    from streameval.run.session import budget

    values = inputs.with_bundle(given)
    if any(values[side] is not None for side in SIDES):
        inputs.check_source(values)
    opened = inputs.read_inputs(values)
    features, query, gallery = (opened[name] for name in ("source", *SIDES))
    remedy = "give features, --query and --gallery"
    check_effect("metric memory", features is not None, remedy)
    if features is not None:
        features.check_rows(query, gallery)
    protocol = Terms.of(opened).protocol
    pairs = find_pairs(query, gallery, protocol)
    report = audit_labels(query, gallery, protocol, pairs)
    if features is not None:
        memory, rows = budget(values["memory"]), 40 * features.shape[1]
        if rows + (64 << 20) > memory:
            raise BudgetError(
                f"memory is {memory} bytes; 40 bytes a gallery row take {rows}: raise --memory by "
                "64 MB beyond that at least"
            )
        with unchanging(features.query, features.gallery):
            report += audit_features(features, memory - rows, gallery, pairs)
    print_answer(values, report.summary, lambda: audit_blocks(report))


@command(
    "budget fill_missing overwrite json",
    "convert 'gallery-*.npy' gallery.zarr",
    "convert features.h5::gallery features.zarr",
)
@click.argument("source", metavar="URI", type=URI)
@click.argument("out", metavar="OUT", type=FILE)
def convert(source: str, out: str, **values: Any) -> None:
    """Convert an array to Zarr, in chunks that read fast.

    Keeps the values and the dtype, and checks that all values are finite. After a crash, the same
    command continues from OUT.progress.
    """
    from streameval.arrays import convert as conversion
    from streameval.arrays import open_array
    from streameval.run.session import budget

    memory = budget(values["memory"])
    array = open_array(source, fill_missing=values["fill_missing"])
    done = conversion.convert(array, out, memory=memory, overwrite=values["overwrite"])
    size, chunks = (" x ".join(f"{n:,}" for n in lengths) for lengths in (done.shape, done.chunks))
    kept = f"; {done.kept} of {done.blocks} blocks were there already" if done.kept else ""
    text = f"{out}: {size} of {done.dtype}, all finite, in chunks of {chunks}{kept}"
    print_lines(values, {name: getattr(done, name) for name in FIELDS}, text)
