"""The command ``streameval convert``."""

from __future__ import annotations

import click

from streameval.cli import declared
from streameval.cli.examples import examples
from streameval.cli.printing import as_json, print_out


@click.command(
    epilog=examples(
        "convert 'gallery-*.npy' gallery.zarr",
        "convert features.h5::gallery features.zarr",
    ),
)
@click.argument("source", metavar="URI")
@click.argument("out", metavar="OUT")
@declared.own_memory
@declared.overwrite("a Zarr array")
@declared.json("what was written")
def convert(source: str, out: str, memory: str, *, overwrite: bool, wants_json: bool) -> None:
    """Write an array of any format to Zarr in chunks that are read fast.

    The values stay what they are; all are checked to be finite. After a crash the same command
    goes on with what is in OUT.progress.
    """
    from streameval.arrays import convert as conversion
    from streameval.arrays import open_array
    from streameval.run.sizes import parse_bytes

    done = conversion.convert(
        open_array(source), out, memory=parse_bytes(memory), overwrite=overwrite
    )
    if wants_json:
        said = {
            "shape": list(done.shape),
            "dtype": done.dtype,
            "chunks": list(done.chunks),
            "blocks": done.blocks,
            "kept": done.kept,
        }
        print_out(as_json(said))
        return
    size = " x ".join(f"{length:,}" for length in done.shape)
    chunks = " x ".join(f"{length:,}" for length in done.chunks)
    went_on = f"; {done.kept} of {done.blocks} blocks were there already" if done.kept else ""
    print_out(f"{out}: {size} of {done.dtype}, all finite, in chunks of {chunks}{went_on}\n")
