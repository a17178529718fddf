"""What tests use of `streameval.run` beside its public names."""

from streameval.run import checkpoint as checkpoint_module
from streameval.run import cluster as cluster_module
from streameval.run import connection as connection_module
from streameval.run import passes as passes_module
from streameval.run import preparation as preparation_module
from streameval.run import worker as worker_module
from streameval.run.checkpoint import Checkpoint as Checkpoint
from streameval.run.cluster import ClusterExecutor as ClusterExecutor
from streameval.run.connection import Connection as Connection
from streameval.run.connection import connect as connect
from streameval.run.connection import local_cluster as local_cluster
from streameval.run.connection import open_cluster as open_cluster
from streameval.run.executor import Pass as Pass
from streameval.run.executor import ThreadExecutor as ThreadExecutor
from streameval.run.job import Job as Job
from streameval.run.passes import find_positives as find_positives
from streameval.run.passes import merge_each as merge_each
from streameval.run.preparation import BINS as BINS
from streameval.run.preparation import Prepared as Prepared
from streameval.run.progress import Cancelled as Cancelled
from streameval.run.progress import Watch as Watch
from streameval.run.session import budget as budget
from streameval.run.session import parse_bytes as parse_bytes
from streameval.run.share import Share as Share
from streameval.run.share import Thresholds as Thresholds
from streameval.run.task import count as count

__all__ = [
    "BINS",
    "Cancelled",
    "Checkpoint",
    "ClusterExecutor",
    "Connection",
    "Job",
    "Pass",
    "Prepared",
    "Share",
    "ThreadExecutor",
    "Thresholds",
    "Watch",
    "budget",
    "checkpoint_module",
    "cluster_module",
    "connect",
    "connection_module",
    "count",
    "find_positives",
    "local_cluster",
    "merge_each",
    "open_cluster",
    "parse_bytes",
    "passes_module",
    "preparation_module",
    "worker_module",
]
