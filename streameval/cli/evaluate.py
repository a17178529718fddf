"""The command ``streameval evaluate``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import declared
from streameval.cli.config import in_force, takes_config
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.neighbors import list_options
from streameval.cli.options import with_bundle
from streameval.cli.running import Given, run
from streameval.cli.trec import trec_options


@takes_config
@click.command(
    epilog=examples(
        "evaluate --query query.npy --gallery gallery.npy --out result \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
        'evaluate --distances distances.zarr --metrics "CMC@1,mAP" --ci 95 \\\n'
        "    --query-labels query.csv --gallery-labels gallery.csv",
        "evaluate pytorch_result.mat --as torchreid",
    )
)
@click.argument("bundle", metavar="[FILE]", required=False)
@click.option("--distances", metavar="URI", help="Stored distances, [queries, gallery].")
@declared.features()
@declared.labels()
@declared.metric
@list_options
@declared.preset
@declared.pairs()
@declared.self_match
@click.option(
    "--shot-draws",
    metavar="N",
    type=int,
    help="Draws of CMC_sampled@x, protocols cuhk03 and cuhk03-torchreid.  [default: 10]",
)
@click.option("--shot-seed", metavar="N", type=int, help="Seed of these draws.  [default: 0]")
@click.option("--good", metavar="FILE", help="Positives of each query: a text, a line a query.")
@click.option("--junk", metavar="FILE", help="Ignored items of each query, in the same way.")
@click.option(
    "--listed-as",
    metavar="1-based|0-based|key",
    default="1-based",
    show_default=True,
    help="What these files list: gallery indices, or keys.",
)
@declared.ties
@declared.tau_range
@declared.rules
@declared.group_by
@click.option(
    "--refine",
    metavar="NAMES",
    help='Make thresholds exact, "TAR|FAR=0.001,EER", by further passes.',
)
@declared.ci
@declared.running
@declared.result
@click.option("--resume", is_flag=True, help="Go on with what is finished of --out, if it is.")
@click.option("--json", is_flag=True, help="Print the summary as JSON, and nothing else.")
@click.option(
    "--format",
    metavar="table|json|csv|markdown|latex",
    default="table",
    show_default=True,
    help="Print the metrics as a row of a table, and nothing else.",
)
@declared.quiet
@click.option("--dry-run", is_flag=True, help="Print the plan; evaluate nothing.")
@click.option("--rate", metavar="N", help="Flop/s of a thread, for the hours of --dry-run: 50G.")
@trec_options
def evaluate(**given: Any) -> None:
    """Evaluate a ranking: CMC, mAP, mINP, open-set and GOM metrics.

    Give stored distances (--distances), features of both sides (--query and --gallery), or lists
    of neighbours (--neighbors; or --index and features); and the labels of both sides, an array a
    column or a table. A FILE that holds query_f, gallery_f, query_label, gallery_label and
    cameras, as pytorch_result.mat, is enough.

    A URI is PATH or PATH::KEY: a .npy, .npz, .mat, HDF5, Parquet, .pt or .fvecs file, a Zarr
    folder, a folder of .npy files, or shards: 'gallery-*.npy'.
    """
    from streameval.report.export import FORMATS, JSON, chosen_format

    chosen = chosen_format(given["format"], wants_json=given["json"], to_file=False)
    given |= {"json": chosen == JSON}
    dry, written = given["dry_run"], given["out"] is not None
    files = ("save_index", "trec_run", "trec_qrels")
    check_effect(
        "overwrite",
        when=written or any(given[name] is not None for name in files),
        remedy="give --out DIR",
    )
    check_effect("rate", when=dry, remedy="give --dry-run, too")
    plain = given["format"] not in FORMATS
    check_effect("format", when=plain or not dry, remedy="leave --dry-run out")
    check_effect("group_by", when=plain or written, remedy="give --out DIR, or --format json")
    given = with_bundle(given)
    run(Given(**given), in_force(click.get_current_context().command, given))
