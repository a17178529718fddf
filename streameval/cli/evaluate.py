"""The command ``streameval evaluate``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli.config import in_force, takes_config
from streameval.cli.examples import examples
from streameval.cli.neighbors import list_options
from streameval.cli.options import with_bundle
from streameval.cli.running import Given, run
from streameval.cli.trec import trec_options

# What there is to choose from is shown here and checked where it is used.
METRICS = "cosine|euclidean|sqeuclidean|dot"
PROTOCOLS = "market1501|allshots|cuhk03|cuhk03-torchreid|separate-camera|no-camera|listed"
PRESETS = "torchreid|fastreid|open-reid|market-matlab|gom-paper|gom-code|oml"
SELF_MATCHES = "index|key"
LISTED_AS = "1-based|0-based|key"
TIES = "pessimistic|optimistic|stable|expected"
VP = "reference|equation"
AP = "step|trapezoid|threshold"


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
@click.option("--query", metavar="URI", help="Features of the queries, [queries, columns].")
@click.option("--gallery", metavar="URI", help="Features of the gallery, [items, columns].")
@click.option("--query-ids", metavar="URI", help="Identities of the queries.")
@click.option("--gallery-ids", metavar="URI", help="Identities of the gallery.")
@click.option("--query-cams", metavar="URI", help="Cameras of the queries.")
@click.option("--gallery-cams", metavar="URI", help="Cameras of the gallery.")
@click.option("--query-keys", metavar="URI", help="Keys of the queries, for --self-match key.")
@click.option("--gallery-keys", metavar="URI", help="Keys of the gallery.")
@click.option(
    "--query-labels",
    metavar="TABLE",
    help="CSV or Parquet: id[,cam][,key]; or file names: a folder, or a .txt.",
)
@click.option(
    "--gallery-labels",
    metavar="TABLE",
    help="CSV or Parquet: id[,cam][,key]; or file names: a folder, or a .txt.",
)
@click.option("--metric", metavar=METRICS, help="Distance of features.  [default: cosine]")
@list_options
@click.option(
    "--as",
    "preset",
    metavar=PRESETS,
    help="Conventions of another tool, where no option says otherwise.",
)
@click.option(
    "--protocol",
    metavar=f"{PROTOCOLS}|FILE.toml",
    help="Which pairs are ignored, and how CMC is read.  [default: market1501]",
)
@click.option(
    "--junk-id",
    metavar="N",
    multiple=True,
    help="Gallery identity to ignore; repeatable.  [default: -1]",
)
@click.option(
    "--self-match", metavar=SELF_MATCHES, help="Ignore each query's own image in the gallery."
)
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
    metavar=LISTED_AS,
    default="1-based",
    show_default=True,
    help="What these files list: gallery indices, or keys.",
)
@click.option(
    "--ties",
    metavar=TIES,
    help="Who is ahead at the same distance.  [default: pessimistic]",
)
@click.option(
    "--range",
    metavar="auto|minmax|LO,HI",
    help="Distances that tau = 0 and tau = 1 stand for.  [default: auto]",
)
@click.option(
    "--vp",
    metavar=VP,
    help="VP of GOM: as the authors' code, or as Eq. 5 is printed.  [default: reference]",
)
@click.option(
    "--false-rate-budget",
    metavar="N",
    type=int,
    help="Returned negatives that count as failure.  [default: 3000]",
)
@click.option("--ap", metavar=AP, help="Rule of average precision and of RP.  [default: step]")
@click.option(
    "--metrics",
    metavar="NAMES",
    help='Metrics by name, "CMC@1,mAP", or all; see: streameval metrics.',
)
@click.option(
    "--group-by",
    metavar="COLUMN|URI",
    help="Each group of queries, too: by id, cam, a column of the table, or an array; or by "
    "cam-pair, camera of query and of positive.",
)
@click.option(
    "--refine",
    metavar="NAMES",
    help='Make thresholds exact, "TAR|FAR=0.001,EER", by further passes.',
)
@click.option(
    "--ci", metavar="LEVEL", type=float, help="Confidence intervals of so many percent: 95."
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Budget of the process, or of each worker.  [default: 2GB; what a worker has]",
)
@click.option("--threads", metavar="N", type=int, help="Threads.  [default: all cores]")
@click.option("--workers", metavar="N", type=int, help="Work in processes, of one thread each.")
@click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster of a scheduler.")
@click.option("--out", metavar="DIR", help="Write the result to this new folder.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@click.option("--resume", is_flag=True, help="Go on with what is finished of --out, if it is.")
@click.option("--json", is_flag=True, help="Print the summary as JSON, and nothing else.")
@click.option(
    "--format",
    metavar="table|json|csv|markdown|latex",
    default="table",
    show_default=True,
    help="Print the metrics as a row of a table, and nothing else.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
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
    from streameval.report.export import JSON, chosen_format

    chosen = chosen_format(given["format"], wants_json=given["json"], to_file=False)
    given |= {"json": chosen == JSON}
    given = with_bundle(given)
    run(Given(**given), in_force(click.get_current_context().command, given))
