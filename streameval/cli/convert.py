"""The command ``streameval convert``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.printing import print_answer

FIELDS = ("shape", "dtype", "chunks", "blocks", "kept")


@click.command(
    epilog=examples(
        "convert 'gallery-*.npy' gallery.zarr", "convert features.h5::gallery features.zarr"
    )
)
@click.argument("source", metavar="URI", type=options.URI)
@click.argument("out", metavar="OUT", type=options.FILE)
@options.memory
@options.overwrite("a Zarr array")
@options.json("what was written")
def convert(source: str, out: str, **values: Any) -> None:
    """Write an array of any format to Zarr in chunks that are read fast.

    The values stay what they are; all are checked to be finite. After a crash the same command
    goes on with what is in OUT.progress.
    """
    from streameval.arrays import convert as conversion
    from streameval.arrays import open_array
    from streameval.run.session import parse_bytes

    memory = parse_bytes(values["memory"])
    done = conversion.convert(open_array(source), out, memory=memory, overwrite=values["overwrite"])
    size, chunks = (" x ".join(f"{n:,}" for n in lengths) for lengths in (done.shape, done.chunks))
    kept = f"; {done.kept} of {done.blocks} blocks were there already" if done.kept else ""
    print_answer(
        values,
        lambda: {name: getattr(done, name) for name in FIELDS},
        lambda _: f"{out}: {size} of {done.dtype}, all finite, in chunks of {chunks}{kept}\n",
    )
